"""How a check says its result: one JSON line on stdout, last.

`values` must be equal with and without the preload library; `about` says more and isn't compared.
"""

import hashlib
import json


def digest(data):
    return hashlib.sha256(bytes(data)).hexdigest()[:16]


def say(values, **about):
    print(json.dumps({"values": values, "about": about}), flush=True)
