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
    """The rule whose findings carry ``finding_id``."""
    rules = load_rules()
    return rules.get(finding_id) or next((one for one in rules.values() if one.gives(finding_id)), None)


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
    ids = [i for one in load_rules().values() for i in (one.id, *one.also) if not i.endswith("*")]
    near = difflib.get_close_matches(topic.lower(), ids, 3, 0.6)
    return [*near, *(t for t in tables.suggest(topic) if t not in near)][:5]
