"""Folders: a file, or a folder, a client. Tables, arrays, images by class, or texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cgpfl.data.tables import SUFFIXES, Reading, Source, read_arrays, read_table, source_of
from cgpfl.errors import CgpflError
from cgpfl.files import regular

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
ARRAYS = (".npz",)
TEXTS = (".txt",)
PARTS = ("train", "test")
CLIENT = "client"
"""The column that a folder's files are told apart by."""


def read_folder(folder: Path, reading: Reading) -> Source:
    """The samples of a folder.

    A file a client (its name is the client's): tables ``.csv`` or ``.parquet``, arrays ``.npz`` with x and y, or texts
    ``.txt`` for next-token. A folder a client: with one such file, or train and test; or with images in a folder a
    class. A folder with the files train and test alone, and a column of clients in them, is one table with its test
    rows given.
    """
    where = f"data {folder}"
    there = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    files, folders = [p for p in there if not p.is_dir()], [p for p in there if p.is_dir()]
    for file in files:
        regular(file, f"data {file}")
    if files and folders:
        raise CgpflError(
            f"{where}: has files ({files[0].name}, …) and folders ({folders[0].name}, …); must be one kind"
        )
    if folders:
        if any(p.is_dir() for p in folders[0].iterdir() if not p.name.startswith(".")):  # a folder a class
            return _images(folders, reading, where)
        return _of_files(_in_folders(folders), reading, where)
    if not files:
        raise CgpflError(f"{where}: is empty; must hold a file, or a folder, a client")
    if sorted(p.stem for p in files) == sorted(PARTS) and files[0].suffix.lower() in SUFFIXES:
        return _parts(files, reading, where)
    return _of_files([(p.stem, "", p) for p in files], reading, where)


def _in_folders(folders: list[Path]) -> list[tuple[str, str, Path]]:
    """(client, part, file) of a folder a client."""
    found = []
    for folder in folders:
        files = sorted(p for p in folder.iterdir() if not p.is_dir() and not p.name.startswith("."))
        for file in files:
            regular(file, f"data {file}")
        if len(files) == 1:
            found.append((folder.name, "", files[0]))
        elif sorted(p.stem for p in files) == sorted(PARTS):
            found.extend((folder.name, p.stem, p) for p in files)
        else:
            names = ", ".join(p.name for p in files[:5]) or "no files"
            raise CgpflError(
                f"data {folder}: has {names}; must have one file, train and test, or a folder of images a class"
            )
    return found


def _of_files(files: list[tuple[str, str, Path]], reading: Reading, where: str) -> Source:
    """A source from (client, part or nothing, file)."""
    kinds = {p.suffix.lower() for _, _, p in files}
    if len(kinds) > 1 and not kinds <= set(SUFFIXES):
        raise CgpflError(f"{where}: has files of several kinds, {', '.join(sorted(kinds))}; must be of one")
    kind = kinds.pop()
    if reading.client:
        raise CgpflError(f"client = {reading.client!r}: {where} has a file or folder a client; leave it out")
    if kind in TEXTS:
        return _texts(files, reading, where)
    if kind in ARRAYS:
        tables = [name for name in reading.chosen() if name != "task"]
        if tables:
            raise CgpflError(f"{tables[0]}: is for tables; {where} has arrays x and y")
        return _arrays(files, where)._replace(task=reading.task)
    if kind not in SUFFIXES:
        raise CgpflError(
            f"{where}: unknown kind of file {kind!r}; must be {', '.join((*SUFFIXES, *ARRAYS, *TEXTS))}, or images"
        )
    return _tables(files, reading, where)


def _tables(files: list[tuple[str, str, Path]], reading: Reading, where: str) -> Source:
    import pandas as pd

    frames = [read_table(path) for _, _, path in files]
    wanted, first = set(frames[0].columns), files[0][2]
    for frame, (_, _, path) in zip(frames, files, strict=True):
        lacks, more = sorted(wanted - set(frame.columns)), sorted(set(frame.columns) - wanted)
        if lacks or more:
            what = f"lacks column {lacks[0]!r}" if lacks else f"has column {more[0]!r}"
            other = f"which {first} {'has' if lacks else 'lacks'}"
            raise CgpflError(f"data {path}: {what}, {other}; all clients need the same columns")
    column = CLIENT
    while column in wanted:  # a name for the column of clients that no column has
        column = f"{column}_"
    frames = [frame.assign(**{column: name}) for frame, (name, _, _) in zip(frames, files, strict=True)]
    source = source_of(pd.concat(frames, ignore_index=True), replace(reading, client=column), where)
    label, aside = source.table or ("", ())
    held = _held(files, [len(frame) for frame in frames])
    return source._replace(
        held=source.held if held is None else held,
        table=(label, tuple(c for c in aside if c != column)),
    )


def _parts(files: list[Path], reading: Reading, where: str) -> Source:
    import pandas as pd

    frames = [read_table(p) for p in files]
    held = np.repeat([p.stem == "test" for p in files], [len(f) for f in frames])
    if set(frames[0].columns) != set(frames[1].columns):
        raise CgpflError(f"{where}: train and test have other columns")
    source = source_of(pd.concat(frames, ignore_index=True), reading, where)
    return source._replace(held=held)


def _held(files: list[tuple[str, str, Path]], sizes: list[int]) -> np.ndarray | None:
    """Which samples are of files for testing, where files are of parts; ``sizes``: samples of each."""
    if not any(part for _, part, _ in files):
        return None
    return np.repeat([part == "test" for _, part, _ in files], sizes)


def _arrays(files: list[tuple[str, str, Path]], where: str) -> Source:
    x: list[np.ndarray] = []
    y: list[np.ndarray] = []
    client: list[str] = []
    for name, _, path in files:
        found = read_arrays(path)
        if "x" not in found or "y" not in found or len(found["x"]) != len(found["y"]):
            raise CgpflError(f"data {path}: has arrays {', '.join(found) or 'none'}; must have x [n, ...] and y [n]")
        if x and found["x"].shape[1:] != x[0].shape[1:]:
            raise CgpflError(f"data {path}: samples have shape {found['x'].shape[1:]}, other clients' {x[0].shape[1:]}")
        if y and (
            found["y"].shape[1:] != y[0].shape[1:] or (found["y"].dtype.kind in "US") != (y[0].dtype.kind in "US")
        ):
            raise CgpflError(
                f"data {path}: y has shape {found['y'].shape} and type {found['y'].dtype}, other clients' not"
            )
        x.append(found["x"])
        y.append(found["y"])
        client += [name] * len(found["y"])
    whole, held = np.concatenate(x), _held(files, [len(part) for part in y])
    scale = 1 / 255 if whole.dtype == np.uint8 else 1.0
    return Source(whole, np.concatenate(y), None, scale, 0.0, np.array(client), held=held)


def _images(clients: list[Path], reading: Reading, where: str) -> Source:
    from PIL import Image

    _only_task(reading, "classification", f"{where} has images in a folder a class")

    found: list[tuple[str, str, Path]] = []
    for client in clients:
        for kind in sorted(p for p in client.iterdir() if p.is_dir() and not p.name.startswith(".")):
            files = sorted(p for p in kind.iterdir() if not p.name.startswith("."))
            odd = next((p for p in files if p.suffix.lower() not in IMAGES), None)
            if odd is not None:
                raise CgpflError(f"data {odd}: is no image; a class's folder holds {', '.join(IMAGES)} files")
            found += [(client.name, kind.name, p) for p in files]
    if not found:
        raise CgpflError(f"{where}: has no images; must be CLIENT/CLASS/IMAGE")
    arrays = []
    for _, _, path in found:
        try:
            with Image.open(path) as opened:
                image: Image.Image = opened
                image = (
                    image
                    if image.mode in ("L", "RGB")
                    else image.convert("L" if image.mode in ("1", "I", "I;16") else "RGB")
                )
                image = image.resize((reading.size, reading.size)) if reading.size else image
                arrays.append(np.asarray(image, np.uint8))
        except (OSError, ValueError) as error:
            raise CgpflError(f"data {path}: cannot be read as an image ({type(error).__name__})") from error
    if len({a.ndim for a in arrays}) > 1:
        arrays = [np.stack([a] * 3, axis=-1) if a.ndim == 2 else a for a in arrays]
    other = next((i for i, a in enumerate(arrays) if a.shape != arrays[0].shape), None)
    if other is not None:
        raise CgpflError(
            f"data {found[other][2]}: is {arrays[other].shape[:2]}, {found[0][2].name} {arrays[0].shape[:2]}; "
            "bring them to one size by size = 32, for instance"
        )
    who, what = np.array([c for c, _, _ in found]), np.array([k for _, k, _ in found])
    return Source(np.stack(arrays), what, None, 1 / 255, 0.0, who, task="classification")


def _texts(files: list[tuple[str, str, Path]], reading: Reading, where: str) -> Source:
    """Characters as tokens: windows of ``length`` of each client's text, one after the other."""
    _only_task(reading, "next-token", f"{where} has texts")
    texts = []
    for _, _, path in files:
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise CgpflError(f"data {path}: cannot be read as UTF-8 text ({type(error).__name__})") from error
    letters = tuple(sorted(set("".join(texts))))
    place = {c: i for i, c in enumerate(letters)}
    x, y, client = [], [], list[str]()
    for text, (name, _, path) in zip(texts, files, strict=True):
        tokens = np.array([place[c] for c in text], np.int32)
        windows = (len(tokens) - 1) // reading.length
        if windows < 1:
            raise CgpflError(
                f"data {path}: has {len(tokens)} characters; needs {reading.length + 1}, or a smaller length"
            )
        at = np.arange(windows)[:, None] * reading.length + np.arange(reading.length)
        x.append(tokens[at])
        y.append(tokens[at + 1])
        client += [name] * windows
    return Source(
        *(np.concatenate(x), np.concatenate(y), len(letters), 1.0, 0.0, np.array(client), letters, "next-token"),
        held=_held(files, [len(windows) for windows in x]),
    )


def _only_task(reading: Reading, task: str, why: str) -> None:
    """Such a folder is for one task."""
    if reading.task not in ("auto", task):
        raise CgpflError(f"task = {reading.task!r}: {why}, which are for {task}")
