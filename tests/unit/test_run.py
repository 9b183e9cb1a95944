"""Folders of runs."""

import re

from harness.folder import default_folder


def test_folders_of_one_second_are_numbered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [default_folder("A small: run!") for _ in range(50)]  # far more than one in some second
    assert len(set(folders)) == 50
    assert all(folder.is_dir() for folder in folders)
    assert re.fullmatch(r"runs/\d{8}T\d{6}Z-a-small-run", str(folders[0]))
    assert any(str(folder).endswith("-a-small-run-2") for folder in folders)


def test_a_folder_that_cannot_be_made_is_left_to_the_writer_to_tell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").touch()
    assert default_folder("x").parent.name == "runs"
