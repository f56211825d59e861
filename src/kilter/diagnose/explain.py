"""``explain`` for finding ids: what a check looks at, why, and on whose word; everything else is asked of the knowledge tables."""

from __future__ import annotations

import datetime
import difflib
import re

import msgspec

from kilter.diagnose.engine import Rule, load_rules
from kilter.facts.finding import Severity
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
    return tables.explain(text) or _of_text(text)


def _of_text(text: str) -> Explanation | None:
    """What a pasted error line means: the explanation of the first finding that it leads to."""
    if " " not in text:
        return None
    from kilter.diagnose.engine import diagnose
    from kilter.intake.merge import assemble
    from kilter.intake.paste import read_text

    # People leave out what stands before the message.
    for line in (text, f"NCCL WARN {text}", f"NVRM: {text}"):
        fragments, info = read_text("the text", line, year=datetime.date.today().year)
        found = [f for f in diagnose(assemble(fragments, [info])).findings if f.severity is not Severity.INFO]
        # The verdict over all nodes means nothing for one line.
        found = [f for f in found if not f.id.startswith("incident.")] or found
        if found:
            break
    else:
        return None
    first = found[0]
    known = explain(first.id)
    if known is None:
        return None
    causes = [f"{cause.text}" + (f"; tells: {cause.decider}" if cause.decider else "") for cause in first.causes]
    return msgspec.structs.replace(
        known,
        paragraphs=[f"{first.what}.", *known.paragraphs],
        facts=[*known.facts, *((f"cause {n}", cause) for n, cause in enumerate(causes, 1))],
        see_also=[*dict.fromkeys([*known.see_also, *(f.id for f in found[1:4])])],
    )


def suggest(topic: str) -> list[str]:
    """Topics that are spelt like ``topic``."""
    ids = [i for one in load_rules().values() for i in (one.id, *one.also) if not i.endswith("*")]
    near = difflib.get_close_matches(topic.lower(), ids, 3, 0.6)
    return [*near, *(t for t in tables.suggest(topic) if t not in near)][:5]
