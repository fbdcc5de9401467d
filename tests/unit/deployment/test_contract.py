"""The public contract is compared with the image of it that is checked in; what services say to each other is not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def tree(tmp_path):
    """A copy of the contract, and of the script that guards it."""
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "contract", tmp_path / "scripts")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def contract(tree, *arguments):
    command = [str(tree / "scripts" / "contract"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def change(tree, path, before, after):
    file = tree / "protos" / "leman" / path
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_the_contract_fits_its_image(tree):
    assert contract(tree).returncode == 0


def test_what_a_caller_would_notice_is_found_and_renewed_only_with_a_record(tree):
    change(tree, "v1/jobs.proto", "string job_id = 1;", "string name = 1;")
    found = contract(tree)
    assert found.returncode == 1
    assert "job_id" in found.stdout
    refused = contract(tree, "--renew")
    assert (refused.returncode, "is frozen" in refused.stderr) == (1, True)
    assert contract(tree, "--break", "99").returncode == contract(tree, "--break").returncode == 2
    assert contract(tree).returncode == 1, "the image was renewed"
    (tree / "docs" / "decisions").mkdir(parents=True)
    (tree / "docs" / "decisions" / "0099-jobs-have-names.md").write_text("# 99. Jobs have names\n")
    assert contract(tree, "--break", "0099").returncode == 0
    assert contract(tree).returncode == 0


def test_what_is_added_is_guarded_once_the_image_has_it(tree):
    change(tree, "v1/info.proto", "message GetInfoRequest {}", "message GetInfoRequest {\n  string asked = 1;\n}")
    lacking = contract(tree)
    assert (lacking.returncode, "lacks what was added" in lacking.stderr) == (1, True)
    assert contract(tree, "--renew").returncode == 0
    assert contract(tree).returncode == 0


def test_what_services_say_to_each_other_may_change(tree):
    change(tree, "internal/v1/submission.proto", "string job_id = 5;", "string job_name = 15;")
    assert contract(tree).returncode == 0
