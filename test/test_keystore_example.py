# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import runpy
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[1]
POLICY = ROOT / "config" / "security" / "separate.policy.xml"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl program")


@pytest.fixture
def make(monkeypatch):
    def make(*arguments):
        monkeypatch.setattr(sys, "argv", ["make_keystore.py", *map(str, arguments)])
        runpy.run_path(str(ROOT / "examples" / "make_keystore.py"), run_name="__main__")

    return make


def topics(permissions, action):
    return {one.text for one in permissions.findall(f".//allow_rule/{action}/topics/topic")}


def test_enclaves_are_signed_and_allow_what_the_policy_says(make, tmp_path):
    make(POLICY, tmp_path, "--namespace", "front", "--domain", 7)
    folder = tmp_path / "enclaves" / "front" / "detector"
    for name in ("permissions", "governance"):
        verify = ["openssl", "smime", "-verify", "-text", "-in", folder / f"{name}.p7s"]
        authority = ["-CAfile", tmp_path / "public" / "ca.cert.pem"]
        signed = subprocess.run([*verify, *authority], check=True, capture_output=True).stdout
        assert signed.split() == (folder / f"{name}.xml").read_bytes().split()
    subprocess.run(
        ["openssl", "verify", "-CAfile", folder / "identity_ca.cert.pem", folder / "cert.pem"],
        check=True,
        capture_output=True,
    )
    permissions = ET.parse(folder / "permissions.xml").getroot()
    assert permissions.findtext(".//subject_name") == "CN=/front/detector"
    assert permissions.findtext(".//domains/id") == "7"
    assert permissions.findtext(".//default") == "DENY"
    published, subscribed = topics(permissions, "publish"), topics(permissions, "subscribe")
    assert {"rt/front/detections", "rt/front/detector/debug/*", "rt/rosout"} <= published
    assert "rr/front/detector/enableReply" in published
    assert {"rt/front/image_raw", "rq/front/detector/enableRequest"} <= subscribed
    assert not any("segmenter" in topic for topic in published | subscribed)


def test_private_keys_are_for_their_owner_only_and_the_authority_stays(make, tmp_path):
    make(POLICY, tmp_path)
    authority = (tmp_path / "public" / "ca.cert.pem").read_bytes()
    make(ROOT / "config" / "security" / "composed.policy.xml", tmp_path)
    assert (tmp_path / "public" / "ca.cert.pem").read_bytes() == authority
    keys = sorted(tmp_path.rglob("*key.pem"))
    assert len(keys) == 7  # six enclaves and the authority
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


@pytest.mark.parametrize("text", ["", "<policy/>", "<policy"])
def test_a_file_that_is_no_policy_is_refused(make, tmp_path, capsys, text):
    file = tmp_path / "no.policy.xml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        make(file, tmp_path / "keystore")
    assert ended.value.code == 2
    assert str(file) in capsys.readouterr().err
    assert not (tmp_path / "keystore").exists()
