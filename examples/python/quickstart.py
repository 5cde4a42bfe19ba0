"""A log in, slates out, in the manners of scikit-learn. Needs the wheel, and no other package.

pip install ./python && python examples/python/quickstart.py [LOG.csv USER_COLUMN ITEM_COLUMN]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from fast_slate import SlatePolicy

with tempfile.TemporaryDirectory() as folder:
    if len(sys.argv) == 4:
        log, user, item = sys.argv[1:]
    else:  # made-up users: 2 000 of them, 500 items
        log, user, item = str(Path(folder) / "log.csv"), "user_id", "item_id"
        shape = ["--users", "2000", "--actions", "500", "--density", "0.06"]
        subprocess.run(["slate", "synth", *shape, "--out", log], check=True, capture_output=True)

    # Ten seconds to look for item vectors; a log of your own deserves the default.
    policy = SlatePolicy(slate_size=5, settings={"prepare.within": 10})
    policy.fit(log, user=user, item=item)

    somebody = policy.user_ids_[0]
    print(f"the slate of user {somebody}")
    print(policy.recommend([somebody]))
    print("\nthe reward of test users beside other recommenders")
    print(policy.evaluate(against=["popularity", "item-knn", "ease"]))

    policy.save("bundle", overwrite=True)
    print("\nserve it with\n  slate serve bundle")
