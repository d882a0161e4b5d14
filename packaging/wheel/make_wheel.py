#!/usr/bin/env python3
"""Makes the wheel of a build: FOLDER/switchyard-VERSION-py3-none-PLATFORM.whl.

    packaging/wheel/make_wheel.py BUILD FOLDER AUDITWHEEL

The wheel has what `make install` installs, without units, in the same places below the environment.
So the programs find the library and each other, and start without Python. PLATFORM is the tag that
AUDITWHEEL says. VERSION and SOURCE_DATE_EPOCH are in the environment (scripts/release.sh).
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
VERSION = os.environ["VERSION"]
DATE = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
INFO = f"switchyard-{VERSION}.dist-info"
DATA = f"switchyard-{VERSION}.data"

METADATA = f"""\
Metadata-Version: 2.1
Name: switchyard
Version: {VERSION}
Summary: Shares an NVIDIA GPU among unmodified CUDA jobs
License: Apache-2.0
License-File: LICENSE
Classifier: Operating System :: POSIX :: Linux
Requires-Python: >=3.6
Description-Content-Type: text/markdown

"""


def text_of(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        return file.read()


def staged(build, stage):
    """(name in the wheel, bytes, mode) of each installed file, in an order of its own."""
    subprocess.run(["cmake", "--install", build, "--prefix", stage, "--component", "switchyard",
                    "--strip"], check=True, stdout=subprocess.DEVNULL)
    for folder, folders, names in os.walk(stage):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, stage)
            program = relative.startswith("bin/")
            place = f"scripts/{relative[4:]}" if program else f"data/{relative}"
            # Below lib/ and share/, too, there are programs: those of containers.
            runs = program or os.access(path, os.X_OK) and ".so" not in name
            with open(path, "rb") as file:
                yield f"{DATA}/{place}", file.read(), 0o755 if runs else 0o644


def write(path, files, tag):
    wheel = ("Wheel-Version: 1.0\nGenerator: switchyard\nRoot-Is-Purelib: false\n"
             f"Tag: py3-none-{tag}\n")
    files = [*files, (f"{INFO}/LICENSE", text_of("LICENSE").encode(), 0o644),
             (f"{INFO}/METADATA", (METADATA + text_of("README.md")).encode(), 0o644),
             (f"{INFO}/WHEEL", wheel.encode(), 0o644)]
    record = ""
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files.append((f"{INFO}/RECORD", (record + f"{INFO}/RECORD,,\n").encode(), 0o644))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)


def platform_of(path, auditwheel):
    said = subprocess.run([auditwheel, "show", path], check=True, capture_output=True, text=True)
    text = " ".join(said.stdout.split())
    tag = re.search(r'consistent with the following platform tag: "(manylinux_[0-9_]+x86_64)"', text)
    if not tag:
        raise SystemExit(f"make_wheel: auditwheel finds no platform for the programs: {text}")
    return tag.group(1)


def main(build, folder, auditwheel):
    with tempfile.TemporaryDirectory() as work:
        files = list(staged(build, os.path.join(work, "stage")))
        draft = os.path.join(work, f"switchyard-{VERSION}-py3-none-linux_x86_64.whl")
        write(draft, files, "linux_x86_64")
        tag = platform_of(draft, auditwheel)
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name.endswith(".whl"):
            os.remove(os.path.join(folder, name))
    wheel = f"switchyard-{VERSION}-py3-none-{tag}.whl"
    write(os.path.join(folder, wheel), files, tag)
    print(f"made {wheel}")


if __name__ == "__main__":
    main(*sys.argv[1:])
