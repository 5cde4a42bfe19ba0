"""The first users of a bundle that has histories: users.py BUNDLE USERS OUT"""
import sys

import pyarrow.parquet as pq

bundle, users, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
pq.write_table(pq.read_table(f"{bundle}/users.parquet").slice(0, users), out)
