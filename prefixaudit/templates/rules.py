"""What a template can be found to do: one rule each, with why it matters and what to do.

They aren't files of `rules/`: those look at deployments and logs, these at renderings.
"""

from __future__ import annotations

from typing import Final

from prefixaudit.core.finding import Confidence, Severity
from prefixaudit.core.rule import Rule


def _rule(
    name: str,
    severity: Severity,
    title: str,
    *,
    why: str,
    do: str,
    wrong: str,
    confidence: Confidence = Confidence.HIGH,
) -> Rule:
    return Rule(
        name=name,
        title=title,
        severity=severity,
        confidence=confidence,
        scope="deployment",
        since="0.1.0",
        status="preview",
        predicate="template check",
        params={},
        rationale=why,
        remediation=do,
        false_positives=wrong,
        references=(),
        path="prefixaudit/templates/rules.py",
    )


_ALL: Final = (
    _rule(
        "template-moves-system-text",
        Severity.HIGH,
        "The chat template moves the system text towards the end of the conversation",
        why="The system text is what most conversations have in common. Where it doesn't stand "
        "first, conversations share it on their first turn at most, and each turn recomputes it.",
        do="Write the system text before the first turn, if the model was trained that way; else "
        "put what all conversations share into the first user message.",
        wrong="The model was trained with this place, and answers worse with another.",
    ),
    _rule(
        "template-moves-tools",
        Severity.MEDIUM,
        "The chat template moves the tool definitions from turn to turn",
        why="Tool definitions are long. Where they wander with the newest user turn, each turn "
        "recomputes them and everything behind their old place.",
        do="Write the tools before the first turn, if the model was trained that way.",
        wrong="The model was trained with this place, and calls tools worse with another.",
    ),
    _rule(
        "template-moves-fixed-text",
        Severity.MEDIUM,
        "The chat template writes a text of its own behind the conversation, on every turn",
        why="Text that stands behind the newest message isn't where the next prompt goes on: each "
        "turn computes it again, and the answer's cached blocks are lost with it.",
        do="Write the text before the first turn, if the model was trained that way.",
        wrong="The model was trained with this place.",
    ),
    _rule(
        "template-rewrites-history",
        Severity.MEDIUM,
        "The chat template writes an earlier message differently once the conversation goes on",
        why="A prefix ends where its text changes: everything from the rewritten message on is "
        "computed again on the next turn.",
        do="Write each message by itself alone, not by what follows it (loop.last, messages[-1]).",
        wrong="The model was trained with histories of this form.",
    ),
    _rule(
        "template-loses-more-each-turn",
        Severity.HIGH,
        "The longer the conversation, the more of it the chat template rewrites on each turn",
        why="Every turn recomputes a share of the whole history: the cost of a conversation grows "
        "with the square of its length.",
        do="Find what stands at the first difference (--show-text) and write it by its own message "
        "alone.",
        wrong="Conversations of this model have few turns.",
    ),
    _rule(
        "template-drops-reasoning",
        Severity.INFORMATIONAL,
        "Earlier reasoning isn't written into the history",
        why="That is what the makers of most reasoning models ask for: a history without thoughts "
        "is shorter. It has a cost: what follows a dropped thought is computed again on the next "
        "turn.",
        do="Nothing, unless the model was trained to keep its thoughts; count the cost with "
        "`prefixaudit why LOG`.",
        wrong="It is meant.",
    ),
    _rule(
        "template-generation-tail",
        Severity.LOW,
        "The end of a prompt isn't in the history",
        why="What the generation prompt opens (a think tag, an empty thought), or what closes the "
        "last message, is missing where the answer stands in the history. The prompt's last tokens "
        "are lost on the next turn, and the answer's cached blocks with them.",
        do="Write the same text before answers of the history as before the one to be generated.",
        wrong="Answers aren't cached, and the few tokens end inside one block.",
    ),
    _rule(
        "template-changes-answers",
        Severity.LOW,
        "An answer stands otherwise in the history than it was generated",
        why="What was generated is in the cache; where the history has other tokens (space cut "
        "off, another seam between tokens), it isn't found there.",
        do="Write answers as they are: no trim, no strip, no text between header and answer.",
        wrong="The client changes answers anyway, or answers aren't cached.",
    ),
    _rule(
        "template-clock-each-second",
        Severity.HIGH,
        "The chat template prints the time of day",
        why="Prompts of different seconds, minutes or hours share nothing behind the clock.",
        do="Print the date alone, or let the client put the time into the newest user message.",
        wrong="The template prints it only for settings that aren't used.",
    ),
    _rule(
        "template-clock-each-day",
        Severity.LOW,
        "The chat template prints today's date",
        why="All prefixes die at the server's midnight; a replay has to know the time zone.",
        do="Pass the date as a variable from the gateway, or expect cold caches once a day.",
        wrong="One recomputation a day is nothing against the traffic.",
    ),
    _rule(
        "template-random",
        Severity.HIGH,
        "The chat template chooses at random",
        why="No two prompts are sure to share a prefix, and no replay is exact.",
        do="Take the choice out of the template.",
        wrong="None.",
    ),
    _rule(
        "template-drops-message",
        Severity.HIGH,
        "The chat template leaves out what a message says, without an error",
        why="The model never sees it, and nobody is told. Two prompts that differ there are equal "
        "to the cache too.",
        do="Write the role, or refuse it with raise_exception.",
        wrong="Clients of this deployment never send this role.",
    ),
    _rule(
        "template-drops-developer",
        Severity.LOW,
        "The chat template leaves out developer messages, without an error",
        why="Clients of newer APIs send `developer` instead of `system`; the model never sees it.",
        do="Treat `developer` as `system` in the template or the gateway.",
        wrong="The gateway renames the role, or no client sends it.",
    ),
    _rule(
        "template-drops-parts",
        Severity.MEDIUM,
        "Content that is sent as a list of parts is left out or printed as code",
        why="Clients send text as parts; the model then sees nothing, or the list's own spelling.",
        do="Walk through the parts, or let the server join their texts (vLLM's content format "
        "`string`).",
        wrong="The server joins parts before rendering.",
    ),
    _rule(
        "template-ignores-tools",
        Severity.LOW,
        "Tools are given and the prompt doesn't hold them",
        why="The model can't call what it doesn't see.",
        do="Use a template for tools (`tool_use`), or don't offer tools with this model.",
        wrong="The model isn't used with tools.",
    ),
    _rule(
        "template-prints-none",
        Severity.MEDIUM,
        "A message without content is printed as the word None",
        why="A stray word in every tool call; and where a client sends an empty text instead, the "
        "prefix ends there.",
        do="Write `message.content or ''`, or let the server replace null.",
        wrong="The server replaces null content before rendering.",
    ),
    _rule(
        "template-needs-forbidden",
        Severity.MEDIUM,
        "The chat template does what the sandbox forbids",
        why="Templates run in a sandbox that forbids changing lists and dictionaries, in servers "
        "too: requests of this form fail.",
        do="Build new lists (`a + [b]`) instead of append, pop and update.",
        wrong="Requests of this form are never sent.",
    ),
    _rule(
        "template-fails",
        Severity.MEDIUM,
        "The chat template fails on an ordinary chat",
        why="The request ends in an error of the server that names no cause to the client.",
        do="Ask for what may be missing (`is defined`), and refuse with raise_exception.",
        wrong="Chats of this form are never sent.",
    ),
    _rule(
        "template-double-bos",
        Severity.MEDIUM,
        "The prompt begins with two begin tokens",
        why="The model was never trained with two, and every block differs from those of the same "
        "prompt with one.",
        do="Write the token once: in the template, or by the tokenizer.",
        wrong="None.",
    ),
    _rule(
        "template-and-tokenizer-begin",
        Severity.INFORMATIONAL,
        "Both the template and the tokenizer write the begin token",
        why="Servers encode chats without special tokens, which is right here. A rendered prompt "
        "sent to the completions API, or add_special_tokens, gives two begin tokens.",
        do="Send rendered prompts with add_special_tokens=false.",
        wrong="All traffic goes through the chat API.",
    ),
    _rule(
        "template-hides-system-text",
        Severity.HIGH,
        "Two conversations with the same system text don't share it",
        why="What every conversation has in common is computed for each of them.",
        do="Write the system text before everything that differs between conversations.",
        wrong="The model was trained with this place.",
    ),
    _rule(
        "template-change-refuses-requests",
        Severity.HIGH,
        "The new chat template refuses requests of the log that the old one renders",
        why="These requests end in an error once the new template is in use.",
        do="See the kinds of refusals, and render one of the requests with the new template.",
        wrong="The clients that sent these requests change with the template.",
    ),
    _rule(
        "template-change-lowers-hits",
        Severity.MEDIUM,
        "Under the new chat template the log hits less, for good",
        why="This is no cost of the roll-out: it stays.",
        do="See which answers of `template check` change, and what stands there.",
        wrong="The new template is better for other reasons, and the cost is accepted.",
    ),
    _rule(
        "template-thinking-changes-start",
        Severity.LOW,
        "Switching thinking on or off changes the beginning of the prompt",
        why="Requests with and without thinking share nothing behind that place.",
        do="Use one setting for each kind of traffic, or a template that switches at the end.",
        wrong="All requests use one setting.",
    ),
)

TEMPLATE_RULES: Final = {rule.name: rule for rule in sorted(_ALL, key=lambda rule: rule.name)}
