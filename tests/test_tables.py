"""One table, several ways to show it; and the columns of results."""

import cgpfl.report.columns as registry
from cgpfl.report.columns import Column, comparison_table, curves, run_table
from cgpfl.tables import Table, three_digits

SMALL = Table("T", ["a", "b", "c"], [["long", "x", "1"], ["s*", "[red]y", "1000"]], "n <", [[1, 2]], left=[0, 1])


def test_on_a_terminal_columns_line_up_and_nothing_is_markup():
    assert SMALL.text().splitlines() == [
        "a     b          c",
        "long  x          1",
        "s*    [red]y  1000",
    ]


def test_markdown():
    assert SMALL.markdown() == (
        "**T**\n\n| a | b | c |\n|---|---|--:|\n| long | x | 1 |\n| s* | [red]y | **1000** |\n\nn <\n"
    )


def test_latex_needs_no_package_and_nothing_in_it_is_a_command():
    made = Table("100 %", ["a_b", "x & y"], [["50.0 ± 1.0", "≈ <0.001"], ["λ\\{", ""]], "n", [[1, 0], [1, 1]]).latex()
    assert made.splitlines() == [
        "% 100 %",
        r"\begin{tabular}{lr}",
        r"\hline",
        r"a\_b & x \& y \\",
        r"\hline",
        r"50.0 $\pm$ 1.0 & $\approx$ $<$0.001 \\",
        r"\textbf{$\lambda$\textbackslash{}\{} &  \\",
        r"\hline",
        r"\end{tabular}",
        "% n",
    ]


def test_numbers_as_people_write_them():
    numbers = [1760.4, 43.31, 2.0, 0.0421, 99.96, 123456.0]
    assert [three_digits(v) for v in numbers] == ["1,760", "43.3", "2", "0.0421", "100", "123,000"]


def test_html():
    made = Table("<T>", ["a", "b"], [["x<y", "1"]], strong=[[0, 1]]).html(words=True)
    assert made == (
        '<table class="words"><caption>&lt;T&gt;</caption><thead><tr><th>a</th><th>b</th></tr></thead>'
        "<tbody><tr><td>x&lt;y</td><td><b>1</b></td></tr></tbody></table>"
    )
    shown = Table("", ["a", "b"], [["x", "1"]]).notebook(["a < b"])
    assert '<td style="text-align: left">x</td><td style="text-align: right">1</td>' in shown
    assert shown.endswith("<p>a &lt; b</p>")


def facts(accuracy=0.5, **more):
    scores = {"pooled": accuracy, "mean": 0.4, "worst_tenth": 0.1}
    plain = {"contexts": None, "rounds": 7, "diverged": None, "bytes_up": 2e6, "bytes_down": 1e6, "gradients": 1234}
    return {"accuracy": scores, "shared_accuracy": None, "seconds": 1.25, **plain, **more}


def test_a_run():
    found = {"contexts": {"k": 3, "ari": 0.5}}
    methods = {"local": facts(0.4), "mine": facts(**found), "lost": facts(None, accuracy_=0, diverged=3)}
    shown = run_table(methods, "terminal", {})
    assert shown.columns == ["method", "accuracy", "mean", "worst tenth", "contexts", "ARI", "MB up", "seconds"]
    assert shown.rows[0] == ["mine", "50.0 %", "40.0 %", "10.0 %", "3", "0.50", "2.0", "1.2"]  # best first
    assert shown.rows[2][:2] == ["lost", "diverged (3)"]
    assert {r for r, _ in shown.strong} == {0}
    page = run_table(methods, "page", {}, {"local": "local"}, {"mine": "7 of 9"})
    row = dict(zip(page.columns, page.rows[0], strict=True))
    assert (row["vs. local"], row["MB"], row["gradients"], row["rounds"]) == ("+10.0", "3.0", "1,234", "7 of 9")
    assert len(page.help) == len(page.columns)
    assert all(page.help[1:])  # every column is explained
    assert "contexts" not in run_table({"local": facts(0.4)}, "page", {}).columns  # nobody has any


def test_a_comparison():
    row = {"accuracy": 0.5, "std": 0.01, "mean": 0.4, "worst_tenth": float("nan"), "rounds_to_target": 12.5}
    row |= {"megabytes": 1.0, "gradients": 12345.0, "seconds": 2.0, "diverged": 0, "tied": False}
    others = {"b": row | {"tied": True, "p": 0.0512, "p_holm": 0.0512}, "c": row | {"p": 1e-4, "p_holm": 0.0302}}
    shown = comparison_table({"a": row, **others}, "table", {}, 2, 0.25)
    assert shown.markdown() == (
        "| method | accuracy | mean | worst tenth | rounds to 25.0 % | MB | gradients | s | p | p (Holm) |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        "| **a** | **50.0 ± 1.0** | **40.0** | **–** | **12** | **1.0** | **12k** | **2.0** | **best** | **–** |\n"
        "| b | 50.0 ± 1.0 | 40.0 | – | 12 | 1.0 | 12k | 2.0 | ≈ 0.051 | 0.051 |\n"
        "| c | 50.0 ± 1.0 | 40.0 | – | 12 | 1.0 | 12k | 2.0 | <0.001 | 0.030 |\n"
    )
    said = dict(line.split(": ", 1) for line in shown.legend())
    assert said["rounds to 25.0 %"].startswith("first evaluated round with an accuracy of 25.0 %")
    assert "≈: not told apart" in said["p"]
    assert comparison_table({"a": row | {"p": None}}, "table", {}, 1, 0.25).columns[-1] == "s"  # one seed, no test
    assert comparison_table({"a": row | {"diverged": 1}}, "terminal", {}, 2, 0.25).rows[0][1] == "diverged 1/2"


def test_a_new_column_is_one_row(monkeypatch):
    ratio = Column("grads/MB", lambda e: f"{e.facts['gradients'] / e.facts['bytes_up'] * 1e6:.0f}", "work a megabyte")
    monkeypatch.setattr(registry, "RUN", (*registry.RUN, ratio))
    for view in ("terminal", "table", "page"):
        shown = run_table({"mine": facts()}, view, {})
        assert shown.columns[-1] == "grads/MB"
        assert shown.rows[0][-1] == "617"


def test_the_page_offers_what_was_measured():
    about = {"title": "AUC", "help": "", "percent": True, "higher": True}
    names = [c["name"] for c in curves({"auc": about})]
    assert names == [
        *("accuracy", "mean", "worst_tenth", "shared_accuracy", "auc", "auc/mean", "auc/worst_tenth"),
        *("loss", "train_loss"),
    ]
    assert [c["name"] for c in curves({}) if not c["percent"]] == ["loss", "train_loss"]
