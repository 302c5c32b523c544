#!/usr/bin/env python3
"""Writes template_cases.json beside this script: what jinja2 makes of many small templates.

  make_template_cases.py        # needs jinja2 3.1.6 from PyPI

The environment is the one in which chat templates are usually rendered: sandboxed and
immutable, trim_blocks and lstrip_blocks, loop controls, a `generation` block, `tojson` as
json.dumps writes it. A case whose `error` is true fails to parse or to render.
"""
import json
import os

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi there \n"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Grüße 😀"},
]
CONTEXT = {
    "messages": MESSAGES,
    "name": "Ada",
    "n": 7,
    "f": 2.5,
    "yes": True,
    "nothing": None,
    "xs": [3, 1, 2],
    "words": ["b", "A", "c"],
    "d": {"b": 1, "a": 2, "items": "field"},
    "nested": {"a": {"b": [10, 20]}},
    "users": [{"n": "x", "age": 3}, {"n": "y", "age": 1}, {"n": "z"}],
    "text": "one two  three\nfour",
    "add_generation_prompt": True,
}

CASES = {
    # Loops and scopes.
    "loop-vars": "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "loop-neighbours": "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "loop-else": "{% for x in [] %}x{% else %}none{% endfor %}{% for x in xs %}{{ x }}{% else %}none{% endfor %}",
    "loop-filter": "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ m.content|trim }};{% endfor %}",
    "loop-unpack": "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "loop-unpack-parens": "{% for (k, v) in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "loop-string": "{% for c in 'añ😀' %}[{{ c }}]{% endfor %}",
    "loop-dict": "{% for k in d %}{{ k }},{% endfor %}",
    "loop-undefined": "[{% for x in missing %}x{% endfor %}]",
    "loop-none": "{% for x in nothing %}x{% endfor %}",
    "loop-nested": "{% for a in xs %}{% for b in words %}{{ loop.index }}{{ loop.depth }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{{ loop.depth }};{% endfor %}",
    "loop-cycle": "{% for x in xs %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "loop-break-continue": "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "set-leak": "{% for m in messages %}{% if loop.first %}{% set x = 1 %}{% endif %}[{{ x }}]{% endfor %}",
    "set-in-if": "{% if yes %}{% set x = 5 %}{% endif %}{{ x }}",
    "set-tuple": "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "set-tuple-value": "{% set a = 1, 2 %}{{ a }}",
    "set-block": "{% set x %}a{{ n }}b{% endset %}[{{ x }}]",
    "set-block-filter": "{% set x | upper | trim %} a{{ n }}b {% endset %}[{{ x }}]",
    "namespace": "{% set ns = namespace(a=1, b='x') %}{% for x in xs %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}",
    "namespace-not": "{% set x = 1 %}{% set x.y = 2 %}",
    "with": "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "filter-block": "{% filter upper %}a{{ name }}{% endfilter %}",
    "generation": "a{% generation %}x{{ n }}{% endgeneration %}b",
    "macro-scope": "{% set x = 1 %}{% macro f(a, b=2) %}{{ a }}{{ b }}{{ x }}{% endmacro %}{{ f(5) }}{{ f(5, b=6) }}{{ f(a=7) }}",
    "macro-missing": "{% macro f(a) %}[{{ a }}{{ a is defined }}]{% endmacro %}{{ f() }}",
    "macro-default-expr": "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}",
    "macro-too-many": "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "macro-recursive": "{% macro f(x) %}{{ x }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "macro-in-loop": "{% for x in xs %}{% macro f() %}<{{ x }}>{% endmacro %}{{ f() }}{% endfor %}",
    "call-block": "{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('a') %}in{{ n }}{% endcall %}",
    "call-block-args": "{% macro each(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) each(xs) %}<{{ x }}>{% endcall %}",
    # White space.
    "ws-minus": "a  {%- if yes -%}  b  {%- endif -%}  c",
    "ws-plus": "  {%+ if yes %}\nb{% endif +%}\nc",
    "ws-lstrip": "x\n   {% if yes %}\n  y\n   {% endif %}\nz",
    "ws-lstrip-not-variable": "x\n   {{ n }}\nz",
    "ws-inline-block": "x {% if yes %} y {% endif %} z",
    "ws-comment": "a\n  {# c #}\nb {#- d -#}  e\n{# f +#}\ng",
    "ws-variable-minus": "a \n {{- n -}} \n b",
    "ws-crlf": "a\r\n{% if yes %}\r\nb\rc{% endif %}\r\n",
    "ws-last-newlines": "a\n\n\n",
    "ws-last-block": "{% if yes %}\na\n{% endif %}\n",
    "ws-first-line": "   {% if yes %}a{% endif %}",
    "ws-two-tags": "  {% set a = 1 %}  {% set b = 2 %}\nx",
    "ws-nbsp": "\u00a0\u2003{%- if yes %}a{% endif %}",
    "raw": "{% raw %}{{ x }}{% if %}{% endraw %}",
    "raw-ws": "a\n  {% raw -%}\n  {{ b }}  \n  {%- endraw %}\nc",
    "raw-lstrip": "a\n  {% raw %}x\n   {% endraw %}\nc",
    # Expressions.
    "arith": "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7.5 // 2 }} {{ 7.5 % 2 }}",
    "arith-power": "{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 2 * -3 }}",
    "div-zero": "{{ 1 / 0 }}",
    "floats": "{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e20 }} {{ 1e15 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.0001 }} {{ 123456789.125 }} {{ 1.5e3 }} {{ 5e-324 }}",
    "ints": "{{ 1_000 }} {{ 0 }} {{ -5 }} {{ +5 }}",
    "strings": "{{ 'a' 'b' \"c\" }} {{ 'it\\'s' }} {{ 'a\\nb\\tc\\\\' }} {{ '\\u00e9\\x41' }} {{ 'q\\z' }}",
    "concat": "{{ 'a' ~ 1 ~ none ~ true ~ 2.0 ~ missing ~ [1, 'x'] }}",
    "plus-strings": "{{ 'a' + 'b' }} {{ [1] + [2] }} {{ 'ab' * 3 }} {{ [0] * 3 }}",
    "plus-mixed": "{{ 'a' + 1 }}",
    "plus-none": "{{ 'a' + nothing }}",
    "plus-undefined": "{{ 'a' + missing }}",
    "compare": "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ [1, 2] == [1, 2] }} {{ 'a' == 1 }} {{ none == none }} {{ 1 != 2 }} {{ [1, 2] < [1, 3] }}",
    "compare-mixed": "{{ 1 < 'a' }}",
    "in": "{{ 'b' in 'abc' }} {{ 'a' in d }} {{ 3 in xs }} {{ 9 not in xs }} {{ 'z' in words }} {{ 1 in [true] }}",
    "in-undefined": "{{ 1 in missing }}",
    "in-int": "{{ 1 in 5 }}",
    "logic": "{{ 1 and 2 }} {{ 0 or 'x' }} {{ not 1 }} {{ none and 1 }} {{ '' or [] or 0 }} {{ not missing }} {{ not yes or yes }}",
    "ternary": "{{ 1 if yes else 2 }} {{ 1 if nothing else 2 }} {{ 1 if nothing }} {{ 'a' if n > 5 else 'b' if n > 3 else 'c' }}",
    "slices": "{{ xs[1:] }} {{ xs[:-1] }} {{ xs[::-1] }} {{ 'añb😀c'[1:4] }} {{ 'añb😀c'[::-1] }} {{ 'abcdef'[1:5:2] }} {{ xs[10:] }} {{ xs[-100:2] }} {{ 'abc'[2:0:-1] }} {{ (1, 2, 3)[:2] }}",
    "index": "{{ xs[0] }} {{ xs[-1] }} {{ 'añb'[1] }} {{ d['a'] }} {{ d.a }} {{ nested.a.b[1] }} {{ nested['a']['b'].0 }} {{ xs[9] }} {{ messages[-1].content }}",
    "index-undefined": "{{ missing.x }}",
    "index-undefined-2": "{{ d.x.y }}",
    "attr-missing": "[{{ d.x }}][{{ name.x }}][{{ n.x }}][{{ nothing.x }}]",
    "dict-items-field": "{{ d['items'] }} {{ d.items()|list|length }}",
    "tuple-print": "{{ (1, 'a') }} {{ (1,) }} {{ () }}",
    "list-print": "{{ [1, 2.0, 'a', none, true, [\"it's\"], {'k': 'v\"q'}] }} {{ ['a\\nb\\\\', '\\t', 'é😀', '\\x00\\x7f\\u200b'] }}",
    "dict-literal": "{{ {'a': 1, 'b': [2]}['b'] }} {{ {'a': 1}|length }} {{ {} }} {{ {'a': {'b': 1}} }}",
    "dict-duplicate": "{{ {'a': 1, 'a': 2} }}",
    "braces": "{{ {'a': {}} }}{{ {'a': {'b': {}}}.a }}",
    "print-consts": "{{ true }} {{ False }} {{ none }} {{ None }} [{{ missing }}]",
    "call-undefined": "{{ missing() }}",
    "call-string": "{{ name() }}",
    "strftime-absent": "{{ strftime_now('%Y') }}",
    "range": "{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(10, 0, -3)|list }}",
    "dict-function": "{{ dict(a=1, b='x') }}",
    "conditional-chain": "{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "nested-quotes": "{{ \"a'b\" }} {{ 'a\"b' }}",
    # Filters.
    "f-trim": "[{{ ' a '|trim }}][{{ '\u00a0\u2003hi\u3000'|trim }}][{{ 'xxaxx'|trim('x') }}]",
    "f-case": "{{ 'aBc dé'|upper }} {{ 'ABC DÉ'|lower }} {{ 'hELLO wORLD'|capitalize }} {{ 'straße'|upper }}",
    "f-title": "{{ 'hello world'|title }}",
    "f-join": "{{ xs|join }} {{ xs|join(', ') }} {{ users|join('-', attribute='n') }} {{ [1, none, 'a']|join('|') }}",
    "f-length": "{{ xs|length }} {{ 'añ😀'|length }} {{ d|count }} {{ ''|length }}",
    "f-default": "{{ missing|default('x') }} {{ ''|default('x') }} {{ ''|default('x', true) }} {{ none|d('x') }} {{ missing|d }}",
    "f-default-deep": "{{ d.x|default('y') }}",
    "f-first-last": "{{ xs|first }} {{ xs|last }} {{ 'abc'|first }} [{{ []|first }}]",
    "f-sort": "{{ xs|sort }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ xs|sort(reverse=true) }} {{ users[:2]|sort(attribute='age')|map(attribute='n')|join }}",
    "f-sort-mixed": "{{ [1, 'a']|sort }}",
    "f-reverse": "{{ xs|reverse|list }} {{ 'abc'|reverse }}",
    "f-unique": "{{ [1, 2, 1, 'a', 'A']|unique|list }}",
    "f-minmax": "{{ xs|min }} {{ xs|max }} {{ words|min }} {{ words|max }}",
    "f-sum": "{{ xs|sum }} {{ [1, 2.5]|sum }} {{ users[:2]|sum(attribute='age') }} {{ xs|sum(start=10) }}",
    "f-map": "{{ words|map('upper')|list }} {{ users|map(attribute='age', default=0)|list }} {{ messages|map(attribute='role')|join(',') }} {{ [' a ']|map('trim')|list }} {{ ['a-b']|map('replace', '-', '+')|list }}",
    "f-select": "{{ [0, 1, none, 2]|select|list }} {{ xs|select('odd')|list }} {{ xs|reject('odd')|list }} {{ xs|select('gt', 1)|list }} {{ xs|select('in', [1, 2])|list }}",
    "f-selectattr": "{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ users|selectattr('age')|map(attribute='n')|join }} {{ users|rejectattr('age', 'defined')|map(attribute='n')|join }} {{ messages|selectattr('role', '==', 'user')|map(attribute='content')|first }}",
    "f-replace": "{{ 'aXbXc'|replace('X', '-') }} {{ 'aXbXc'|replace('X', '-', 1) }}",
    "f-int-float": "{{ '42'|int }} {{ ' 7 '|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ '3.5'|float }} {{ 'x'|float }} {{ true|int }} {{ '3.7'|int }}",
    "f-round": "{{ 2.567|round(2) }} {{ 2.5|round }} {{ 2.3|round(method='ceil') }} {{ 2.7|round(method='floor') }} {{ 3|round }}",
    "f-abs": "{{ -3|abs }} {{ (-3)|abs }} {{ -2.5|abs }}",
    "f-items": "{{ d|items|list }} {{ missing|items|list }}",
    "f-dictsort": "{{ d|dictsort }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}",
    "f-indent": "{{ 'a\\nb\\n\\nc'|indent(2) }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent(2, blank=true) }}|{{ 'a\\nb'|indent('> ') }}|{{ 'a\\nb\\n'|indent }}",
    "f-string": "{{ 5|string ~ 'x' }} {{ [1]|string|length }}",
    "f-escape": "{{ '<a href=\"x\">\\'&'|e }} {{ '<b>'|safe }}",
    "f-list": "{{ 'abc'|list }} {{ d|list }}",
    "f-wordcount": "{{ text|wordcount }}",
    "f-attr": "{{ d|attr('items') is defined }} [{{ d|attr('zz') }}]",
    "f-unknown": "{{ 1|nosuchfilter }}",
    "f-precedence": "{{ 1 + 2|string|length }} {{ 'a' ~ 'b'|upper }} {{ -1|abs }} {{ not ''|length }}",
    "tojson": "{{ {'b': 1, 'a': \"<é/'&\u2028>\", 'l': [1, 2.0, none, true, 1e20], 'n': {}, 'q': '\"\\\\\\n\\t\\u0001\\x7f'}|tojson }}",
    "tojson-indent": "{{ nested|tojson(indent=2) }}{{ []|tojson(indent=1) }}",
    "tojson-ascii": "{{ 'é😀\x7f'|tojson(ensure_ascii=true) }}",
    "tojson-sep": "{{ {'a': [1, 2]}|tojson(separators=(',', ':')) }}",
    "tojson-sort": "{{ d|tojson(sort_keys=true) }}",
    "tojson-keys": "{{ {1: 'a', none: 2, true: 3, 1.5: 4}|tojson }}",
    "tojson-undefined": "{{ missing|tojson }}",
    # Tests.
    "t-types": "{{ 1 is number }}{{ 1 is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ true is integer }}{{ true is number }}{{ 'a' is string }}{{ d is mapping }}{{ xs is sequence }}{{ d is sequence }}{{ xs is iterable }}{{ 'a' is iterable }}{{ n is iterable }}{{ none is none }}{{ xs is string }}",
    "t-defined": "{{ missing is defined }}{{ missing is undefined }}{{ name is defined }}{{ d.x is defined }}{{ d.a is not defined }}",
    "t-compare": "{{ 1 is eq 1 }}{{ 1 is equalto(1) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is gt(1) }}{{ 'a' is in ['a'] }}{{ 4 is divisibleby 2 }}{{ 4 is divisibleby(3) }}{{ 3 is odd }}{{ 3 is even }}",
    "t-bool": "{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 0 is false }}{{ none is sameas none }}",
    "t-not-and": "{{ name is not none and n is number }}{{ missing is defined or yes }}{{ not missing is defined }}",
    "t-case": "{{ 'ABC' is upper }}{{ 'abc' is lower }}{{ 'aBC' is upper }}",
    "t-callable": "{{ range is callable }}{{ name is callable }}",
    "t-unknown": "{{ 1 is nosuchtest }}",
    "t-undefined-none": "{{ missing is none }}",
    # Methods.
    "m-strip": "[{{ '  a '.strip() }}][{{ '  a '.lstrip() }}][{{ '  a '.rstrip() }}][{{ 'xyaxy'.strip('yx') }}][{{ '\\n a\\n'.strip('\\n') }}]",
    "m-split": "{{ text.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b  c d'.split(none, 2) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a<s>b'.split('<s>')[-1] }}",
    "m-rsplit": "{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a,b,c'.rsplit(',') }}",
    "m-splitlines": "{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }}",
    "m-starts-ends": "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('bc') }}{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('') }}",
    "m-case": "{{ 'aB'.upper() }}{{ 'aB'.lower() }}{{ 'ab cd'.title() }}{{ 'aB'.capitalize() }}",
    "m-replace": "{{ 'aXbX'.replace('X', '--') }}{{ 'aXbX'.replace('X', '', 1) }}",
    "m-find": "{{ 'añb'.find('b') }}{{ 'abc'.find('z') }}{{ 'abab'.rfind('b') }}{{ 'abc'.index('c') }}{{ 'banana'.count('an') }}",
    "m-join": "{{ ', '.join(words) }}{{ ''.join([]) }}",
    "m-affix": "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removeprefix('z') }}",
    "m-is": "{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ ''.isdigit() }}{{ 'AB'.isupper() }}{{ 'ab1'.isalnum() }}{{ 'ab'.islower() }}",
    "m-dict": "{{ d.keys()|list }} {{ d.values()|list }} {{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 5) }}",
    "m-list": "{{ xs.index(1) }} {{ [1, 1, 2].count(1) }}",
    "m-append": "{{ xs.append(4) }}",
    "m-none": "{{ 'a'.nosuch() }}",
    # Errors.
    "e-raise": "{{ raise_exception('no ' ~ name) }}",
    "e-if": "{% if %}",
    "e-end": "{% if yes %}a",
    "e-endfor": "{% for x in xs %}a{% endif %}",
    "e-unknown": "{% nosuch %}",
    "e-brace": "{{ (1 }}",
    "e-open": "{{ 1",
    "e-string": "{{ 'a }}",
    "e-comment": "a {# b",
    "e-break": "{% break %}",
    "e-unpack": "{% for a, b in xs %}{{ a }}{% endfor %}",
    "e-char": "{{ 1 ? 2 }}",
    "no-second-pass": "{% set x = '{{ 7*7 }}{% raw %}' %}{{ x }}{{ x|upper }}",
    # Whole chat templates.
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "inst": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ '<s>' + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + '</s>' }}{% endif %}{% endfor %}",
    "tools": "{%- if tools is not none and tools %}\n    {{- 'T' }}\n{%- endif %}\n{%- for message in messages %}\n    {%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) or (message.role == \"assistant\" and not message.tool_calls) %}\n        {{- '<' + message.role + '>\\n' + message.content + '</>' + '\\n' }}\n    {%- elif message.role == \"assistant\" %}\n        {{- 'C' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<assistant>\\n' }}\n{%- endif %}\n",
    "last-user": "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n    {%- if ns.multi_step_tool and message.role == 'user' and message.content is string and not(message.content.startswith('<t>') and message.content.endswith('</t>')) %}\n        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}\n{{- ns.last_query_index }}",
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    rows = []
    for name, template in CASES.items():
        row = {"name": name, "template": template}
        try:
            row["text"] = environment().from_string(template).render(**CONTEXT)
        except Exception as error:  # noqa: BLE001: any failure is the expected result
            row["error"] = True
            if name.startswith("e-raise"):
                row["message"] = str(error)
        rows.append(row)
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "template_cases.json"), "w", encoding="utf-8") as file:
        json.dump({"reference": "jinja2 3.1.6", "context": CONTEXT, "cases": rows}, file, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
