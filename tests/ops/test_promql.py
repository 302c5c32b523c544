"""The reader of expressions that the other tests rely on."""

from promql import families_of, family, names, selectors


def test_it_finds_the_names_and_no_functions_labels_or_words():
    expression = """
      histogram_quantile(0.99, sum by (model, le) (rate(a_bucket{x="y{z}",w=~"p|q"}[5m])))
      and on (model) level:b:sum5m >= bool 14.4 * 0.01
      or (c offset 6h) / on () group_left (d) max without (e) (f{g!=""}) unless time() > 1e3
    """
    assert names(expression) == {"a_bucket", "level:b:sum5m", "c", "f"}


def test_it_keeps_the_matchers_as_they_are():
    assert selectors('a{x="by (b)", y=~"c|d"} + e') == [("a", '{x="by (b)", y=~"c|d"}'), ("e", "")]


def test_parts_of_a_histogram_belong_to_it_and_nothing_else_does():
    families = families_of("# HELP h x\n# TYPE h histogram\n# TYPE c_total counter\n")
    assert [family(n, families) for n in ("h_bucket", "h_sum", "h_count")] == ["h"] * 3
    assert family("c_total", families) == "c_total"
    assert family("c_total_count", families) is None
    assert family("h_total", families) is None
