"""Makes item vectors from what films are called and of what kind they are: TF-IDF of titles and genres,
shortened to 200 numbers by an SVD. No user has a part in them.

    python texts.py movies.csv

writes beta.npy, one row a film, and ids.txt, the ids of these rows, one a line.
Needs: pip install numpy
"""

import csv
import re
import sys

import numpy as np

with open(sys.argv[1], newline="", encoding="utf-8") as file:
    films = list(csv.DictReader(file))
texts = [set(re.findall(r"[a-z]{2,}|\d{4}", f"{film['title']} {film['genres']}".lower())) for film in films]
counts = {}
for words in texts:
    for word in words:
        counts[word] = counts.get(word, 0) + 1
# A word of one film says nothing about another.
places = {word: at for at, word in enumerate(sorted(word for word, count in counts.items() if count > 1))}
matrix = np.zeros((len(films), len(places)), np.float32)
for row, words in zip(matrix, texts):
    for word in words & places.keys():
        row[places[word]] = np.log(len(films) / counts[word])
matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)

# The leading eigenvectors of the words' products: cheaper than an SVD of all films.
values, vectors = np.linalg.eigh(matrix.T @ matrix)
np.save("beta.npy", (matrix @ vectors[:, np.argsort(values)[::-1][:200]]).astype(np.float32))
with open("ids.txt", "w", encoding="utf-8") as file:
    file.writelines(f"{film['movieId']}\n" for film in films)
