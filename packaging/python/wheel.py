"""Makes a wheel that holds one program: wheel.py BINARY VERSION PLATFORM README FOLDER.

A wheel is a zip file (PEP 427). pip copies what is in `*.data/scripts` to where programs are, with its mode.
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

binary, version, platform, readme, folder = sys.argv[1:]
name = f"weir-{version}"
tag = f"py3-none-{platform}"
metadata = f"""Metadata-Version: 2.1
Name: weir
Version: {version}
Summary: Stream operators in any language, exactly-once
License: Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{pathlib.Path(readme).read_text(encoding="utf-8")}"""
wheel = f"Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: {tag}\n"
files = [
    (f"{name}.data/scripts/weir", pathlib.Path(binary).read_bytes(), 0o755),
    (f"{name}.dist-info/METADATA", metadata.encode(), 0o644),
    (f"{name}.dist-info/WHEEL", wheel.encode(), 0o644),
]
record = ""
path = pathlib.Path(folder) / f"{name}-{tag}.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

    def add(file, content, mode):
        # The same input makes the same wheel.
        entry = zipfile.ZipInfo(file, (2020, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, content)

    for file, content, mode in files:
        add(file, content, mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{file},sha256={digest},{len(content)}\n"
    add(f"{name}.dist-info/RECORD", (record + f"{name}.dist-info/RECORD,,\n").encode(), 0o644)
print(path)
