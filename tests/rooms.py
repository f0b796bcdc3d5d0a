"""What a source file imports of the package, however it says so: the architecture's check, see test_rooms.py."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import cgpfl

SOURCE = Path(cgpfl.__file__).parent
IMPORTERS = {"import_module", "__import__", "run_module", "run_path", "resolve_name", "exec", "eval"}
NAME = re.compile(r"cgpfl((?:\.\w+)+)(:[\w.]+)?")


class Import(NamedTuple):
    room: str
    """"?": the source does not tell which."""
    kind: str
    """top: when the file is imported; lazy: in a function; types: for annotations alone; text: a module's name."""
    line: int


def room_of(name: str) -> str | None:
    """The room of ``cgpfl.NAME``: itself, or where the package's own name is at home; None: nothing of the kind."""
    here = SOURCE / name
    return name if here.is_dir() or here.with_suffix(".py").exists() else cgpfl._WHERE.get(name)


class _Reader(ast.NodeVisitor):
    def __init__(self, tree: ast.AST, module: str) -> None:
        self.module, self.kind, self.found = module, "top", set()
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [(node, alias) for node in imports for alias in node.names]
        self.roots = {  # what the package itself is called here
            alias.asname or "cgpfl"
            for node, alias in names
            if isinstance(node, ast.Import)
            and (alias.name == "cgpfl" or (alias.name.startswith("cgpfl.") and not alias.asname))
        }
        self.importers = {alias.asname for _, alias in names if alias.name in IMPORTERS} | IMPORTERS
        self.visit(tree)

    def add(self, target: str, node: ast.AST, kind: str | None = None) -> None:
        parts = target.split(".")
        if parts[0] == "cgpfl" and len(parts) > 1:
            room = "?" if parts[1] in ("", "*") else room_of(parts[1])
            if room is not None:
                self.found.add(Import(room, kind or self.kind, node.lineno))

    def within(self, kind: str, nodes: list[ast.AST]) -> None:
        before, self.kind = self.kind, self.kind if self.kind == "types" else kind
        for node in nodes:
            self.visit(node)
        self.kind = before

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            up = self.module.split(".")[: -node.level]
            module = ".".join([*up, *([module] if module else [])])
        for alias in node.names:
            self.add(f"{module}.{alias.name}", node)

    def visit_If(self, node: ast.If) -> None:
        types = ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING"
        self.within("types" if types else self.kind, node.body)
        self.within(self.kind, node.orelse)
        self.visit(node.test)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.within("lazy", list(ast.iter_child_nodes(node)))

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # noqa: N815

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            if NAME.fullmatch(node.value) or node.value == "cgpfl.":
                self.add(node.value.partition(":")[0], node, "text")
            elif node.value in IMPORTERS:
                self.add("cgpfl.*", node, "text")  # getattr(importlib, "import_module")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and first.value.startswith("cgpfl."):
            self.add(first.value.rpartition(".")[0] if first.value.count(".") > 1 else "cgpfl.*", node, "text")
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self.visit(value)

    def visit_Call(self, node: ast.Call) -> None:
        if self.imports(node.func):
            first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "name"), None)
            told = isinstance(first, ast.JoinedStr) and ast.unparse(first)[2:].startswith("cgpfl.")
            known = isinstance(first, ast.Constant) and re.fullmatch(r"\w+(\.\w+)*(:[\w.]+)?", str(first.value))
            if not (told or known):
                self.add("cgpfl.*", node, "text")
        else:
            self.visit(node.func)
        for child in (*node.args, *node.keywords):
            self.visit(child)

    def imports(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in self.importers) or (
            isinstance(node, ast.Attribute) and node.attr in IMPORTERS
        )

    def visit_Name(self, node: ast.Name) -> None:
        if self.imports(node):  # by another name from here on
            self.add("cgpfl.*", node, "text")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self.imports(node):
            self.add("cgpfl.*", node, "text")
        if isinstance(node.value, ast.Name) and node.value.id in self.roots:
            self.add(f"cgpfl.{node.attr}", node)
        self.visit(node.value)


def imports(source: str, module: str = "cgpfl.somewhere.file") -> set[Import]:
    """Of the rooms of the package, in the source of a module (a package's own file: ``cgpfl.room.__init__``)."""
    return _Reader(ast.parse(source), module).found


def imports_of(path: Path) -> set[Import]:
    """Of a file of the package."""
    return imports(path.read_text(), ".".join(["cgpfl", *path.relative_to(SOURCE).with_suffix("").parts]))
