# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Make a keystore for SROS2 from a policy with nothing but the ``openssl`` program.

    python examples/make_keystore.py config/security/composed.policy.xml ~/keystore
    python examples/make_keystore.py policy.xml ~/keystore --namespace front --domain 7

Where ``ros2 security`` is installed, use that: it makes the same files (docs/security.md). The
keystore holds private keys: keep it off the robot, and copy only ``enclaves`` to it.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

DAYS = 3650
VALID = ("2020-01-01T00:00:00", "2037-12-31T23:59:59")

GOVERNANCE = """<?xml version="1.0" encoding="UTF-8"?>
<dds><domain_access_rules><domain_rule>
  <domains><id>{domain}</id></domains>
  <allow_unauthenticated_participants>false</allow_unauthenticated_participants>
  <enable_join_access_control>true</enable_join_access_control>
  <discovery_protection_kind>ENCRYPT</discovery_protection_kind>
  <liveliness_protection_kind>ENCRYPT</liveliness_protection_kind>
  <rtps_protection_kind>SIGN</rtps_protection_kind>
  <topic_access_rules><topic_rule>
    <topic_expression>*</topic_expression>
    <enable_discovery_protection>true</enable_discovery_protection>
    <enable_liveliness_protection>true</enable_liveliness_protection>
    <enable_read_access_control>true</enable_read_access_control>
    <enable_write_access_control>true</enable_write_access_control>
    <metadata_protection_kind>ENCRYPT</metadata_protection_kind>
    <data_protection_kind>ENCRYPT</data_protection_kind>
  </topic_rule></topic_access_rules>
</domain_rule></domain_access_rules></dds>
"""

DDS_NAMES = {
    "publish": (("publish", "rt{}"),),
    "subscribe": (("subscribe", "rt{}"),),
    "reply": (("publish", "rr{}Reply"), ("subscribe", "rq{}Request")),
    "request": (("publish", "rq{}Request"), ("subscribe", "rr{}Reply")),
}
"""DDS topics of a ROS topic or service, by rule of the policy."""


def openssl(*arguments: object) -> None:
    """Run openssl; exit with its message when it fails."""
    try:
        answer = subprocess.run(
            ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        sys.exit("openssl is not installed; fix: sudo apt install openssl")
    if answer.returncode:
        sys.exit(f"openssl {arguments[0]} failed: {answer.stderr.strip()}")


def make_key(file: Path) -> Path:
    """Make a private key that only its owner can read."""
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", file)
    file.chmod(0o600)
    return file


def resolve(name: str, namespace: str, node: str) -> str:
    """Resolve a name of the policy to an absolute one."""
    if name.startswith("~/"):
        return posixpath.join(namespace, node, name[2:])
    return posixpath.join(namespace, name)


def find_topics(enclave: ET.Element, namespace: str) -> Iterator[tuple[str, str]]:
    """Find ``publish`` or ``subscribe``, and the DDS topic, of all rules of an enclave."""
    for profile in enclave.iter("profile"):
        space = posixpath.join("/", namespace, profile.get("ns", "/").lstrip("/"))
        for rules in profile:
            for attribute, qualifier in rules.attrib.items():
                if qualifier != "ALLOW" or attribute not in DDS_NAMES:
                    sys.exit(f"the policy has a rule {attribute}={qualifier!r}: use ros2 security")
                for rule in rules:
                    name = resolve(rule.text or "", space, profile.get("node", ""))
                    for action, form in DDS_NAMES[attribute]:
                        yield action, form.format(name)


def make_permissions(enclave: ET.Element, path: str, namespace: str, domain: int) -> str:
    """Make the DDS permissions of an enclave; all else is denied."""
    topics = {("publish", "ros_discovery_info"), ("subscribe", "ros_discovery_info")}
    topics.update(find_topics(enclave, namespace))
    root = ET.Element("dds")
    grant = ET.SubElement(ET.SubElement(root, "permissions"), "grant", name=path)
    ET.SubElement(grant, "subject_name").text = f"CN={path}"
    validity = ET.SubElement(grant, "validity")
    for name, text in zip(("not_before", "not_after"), VALID, strict=True):
        ET.SubElement(validity, name).text = text
    rule = ET.SubElement(grant, "allow_rule")
    ET.SubElement(ET.SubElement(rule, "domains"), "id").text = str(domain)
    for action in ("publish", "subscribe"):
        listed = ET.SubElement(ET.SubElement(rule, action), "topics")
        for topic in sorted(name for one, name in topics if one == action):
            ET.SubElement(listed, "topic").text = topic
    ET.SubElement(grant, "default").text = "DENY"
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def sign(file: Path, keystore: Path) -> None:
    """Sign a file ``NAME.xml`` as ``NAME.p7s``."""
    authority = ("-signer", keystore / "public/ca.cert.pem", "-inkey", keystore / CA_KEY)
    target = file.with_suffix(".p7s")
    openssl("smime", "-sign", "-text", "-in", file, "-out", target, *authority)


CA_KEY = Path("private/ca.key.pem")


def make_authority(keystore: Path, domain: int) -> None:
    """Make the certificate authority and the rules of the domain, unless they are there."""
    for name in ("public", "private", "enclaves"):
        (keystore / name).mkdir(parents=True, exist_ok=True)
    (keystore / "private").chmod(0o700)
    if not (keystore / CA_KEY).is_file():
        key = make_key(keystore / CA_KEY)
        certificate = keystore / "public" / "ca.cert.pem"
        openssl(
            *("req", "-x509", "-new", "-key", key, "-sha256", "-days", DAYS),
            *("-subj", "/CN=sros2CA", "-out", certificate),
        )
    governance = keystore / "enclaves" / "governance.xml"
    governance.write_text(GOVERNANCE.format(domain=domain), encoding="utf-8")
    sign(governance, keystore)


def make_enclave(keystore: Path, enclave: ET.Element, namespace: str, domain: int) -> Path:
    """Make key, certificate and permissions of an enclave; returns its folder."""
    path = posixpath.join("/", namespace, (enclave.get("path") or "").lstrip("/"))
    folder = keystore / "enclaves" / path.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    authority = keystore / "public" / "ca.cert.pem"
    for name in ("identity_ca.cert.pem", "permissions_ca.cert.pem"):
        (folder / name).write_bytes(authority.read_bytes())
    for name in ("governance.xml", "governance.p7s"):
        (folder / name).write_bytes((keystore / "enclaves" / name).read_bytes())
    key, request = make_key(folder / "key.pem"), folder / "request.pem"
    subject = "/CN=" + path.replace("/", "\\/")
    openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
    openssl(
        *("x509", "-req", "-in", request, "-sha256", "-days", DAYS, "-CA", authority),
        *("-CAkey", keystore / CA_KEY, "-CAcreateserial", "-out", folder / "cert.pem"),
    )
    request.unlink()
    permissions = folder / "permissions.xml"
    text = make_permissions(enclave, path, namespace, domain)
    permissions.write_text(text, encoding="utf-8")
    sign(permissions, keystore)
    return folder


def main() -> None:
    """Make the enclaves of a policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("policy", type=Path, help="policy file, as in config/security")
    parser.add_argument("keystore", type=Path, help="folder that is made, or gets the enclaves")
    parser.add_argument("--namespace", default="", help="namespace of all nodes")
    parser.add_argument(
        "--domain", type=int, default=int(os.environ.get("ROS_DOMAIN_ID") or 0),
        help="ROS_DOMAIN_ID of the robot",
    )  # fmt: skip
    options = parser.parse_args()
    try:
        enclaves = ET.parse(options.policy).getroot().findall("enclaves/enclave")
    except (OSError, ET.ParseError) as error:
        parser.error(f"{options.policy} cannot be read: {error}")
    if not enclaves:
        parser.error(f"{options.policy} has no enclave")
    make_authority(options.keystore, options.domain)
    for enclave in enclaves:
        folder = make_enclave(
            options.keystore, enclave, options.namespace.strip("/"), options.domain
        )
        print(folder)


if __name__ == "__main__":
    main()
