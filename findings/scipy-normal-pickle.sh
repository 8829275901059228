#!/bin/sh
# scipy 1.17.1: a pickled `scipy.stats.Normal(mu=1, sigma=2)`, one of the new distributions, comes
# back as a standard normal distribution. It still prints mu=1.0 and sigma=2.0, and its mean is 0.
# `Normal.__new__` makes another class, StandardNormal, where it gets no parameters, and pickle
# calls it without any. Each process that is sent such a distribution computes with the wrong one,
# and nothing is raised.
#
# Seen with Python 3.11:
#
#     before: Normal(mu=1.0, sigma=2.0), mean 1.0
#     after: StandardNormal(mu=1.0, sigma=2.0), mean 0.0
set -u
python=$(command -v python3) || exit 77
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv" || exit 77
"$folder/venv/bin/python" -m pip install --quiet scipy==1.17.1 || exit 77
told=$("$folder/venv/bin/python" -c "
import pickle
from scipy import stats
before = stats.Normal(mu=1, sigma=2)
after = pickle.loads(pickle.dumps(before))
print(f'before: {before}, mean {float(before.mean())}')
print(f'after: {after}, mean {float(after.mean())}')")
echo "$told"
[ "$told" = 'before: Normal(mu=1.0, sigma=2.0), mean 1.0
after: StandardNormal(mu=1.0, sigma=2.0), mean 0.0' ] || exit 1
