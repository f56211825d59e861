"""``explain`` for finding ids: what a check looks at, why, and on whose word; everything else is asked of the knowledge tables."""

from __future__ import annotations

import difflib
import re

from kilter.diagnose.engine import Rule, load_rules
from kilter.knowledge import explain as tables
from kilter.knowledge.explain import Explanation

#: Findings whose last part is a code are explained by the table, with the rule's text after it.
_CODED = ((re.compile(r"gpu\.xid\.(\d+)$"), "xid {}"), (re.compile(r"nvswitch\.sxid\.(\d+)$"), "sxid {}"))


def rule_of(finding_id: str) -> Rule | None:
    """The rule whose findings carry ``finding_id``: its own id, or a part that the rule adds."""
    rules = load_rules()
    if finding_id in rules:
        return rules[finding_id]
    for one in rules.values():
        if one.id.endswith("*") and finding_id.startswith(one.id[:-1]):
            return one
    # A rule may give further ids; the source of the check names them as literals.
    return next((one for one in rules.values() if finding_id in further_ids(one)), None)


def further_ids(one: Rule) -> set[str]:
    """Ids that a rule's function gives to its findings beside its own."""
    names: set[str] = set()
    for constant in _constants(one.check.__code__):
        if isinstance(constant, str) and re.fullmatch(r"[a-z]+(?:\.[a-z0-9_]+)+", constant):
            names.add(constant)
    for name in one.check.__code__.co_names:
        table = one.check.__globals__.get(name)
        if isinstance(table, dict):
            names |= {v[0] for v in table.values() if isinstance(v, tuple) and v and isinstance(v[0], str) and "." in v[0]}
    return names


def _constants(code: object) -> list[object]:
    found: list[object] = []
    for constant in getattr(code, "co_consts", ()):
        found.append(constant)
        if hasattr(constant, "co_consts"):
            found += _constants(constant)
    return found


def _of_rule(one: Rule, topic: str) -> Explanation:
    facts = [("check", one.id), ("family", one.family), ("looks at", one.scope)]
    if one.hint:
        facts.append(("facts come from", one.hint))
    return Explanation(
        topic=topic,
        kind="finding",
        title=f"{topic}: {one.title}" if topic == one.id else f"{topic} (check {one.id}: {one.title})",
        paragraphs=[one.doc] if one.doc else [],
        facts=facts,
        actions=[one.action] if one.action else [],
        sources=list(one.sources),
        see_also=[one.sop.lower()] if one.sop else [],
    )


def explain(topic: str) -> Explanation | None:
    """What is known of a finding id or of an entry of the tables; None for neither."""
    text = topic.strip()
    for pattern, form in _CODED:
        if match := pattern.match(text.lower()):
            return tables.explain(form.format(match.group(1)))
    one = rule_of(text.lower())
    if one is not None:
        return _of_rule(one, text.lower())
    return tables.explain(text)


def suggest(topic: str) -> list[str]:
    """Topics that are spelt like ``topic``."""
    ids = [i for i in load_rules() if not i.endswith("*")]
    near = difflib.get_close_matches(topic.lower(), ids, 3, 0.6)
    return [*near, *(t for t in tables.suggest(topic) if t not in near)][:5]
