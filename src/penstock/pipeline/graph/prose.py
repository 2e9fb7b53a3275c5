"""Graph of prose and Markdown: names and recurring noun phrases, related by where they stand together.

Names are found by capital letters and word lists: closed classes of English, titles, and words that tell a
kind. Markdown adds its sections and links.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from penstock.catalog.graph import DOCUMENT, SECTION, Entity, Extraction, Relation
from penstock.pipeline.chunk import text
from penstock.pipeline.graph.protocol import (
    DATE,
    NAME,
    ORGANISATION,
    PERSON,
    PLACE,
    QUANTITY,
    RELATED,
    TERM,
    GraphChunk,
    GraphDocument,
    GraphExtractor,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTION_WORDS = _words(
    """
    a about above according across after again against ago ahead all almost alone along already also
    although always am amid among an and another any anyone anything are around as at away back be because
    been before behind being below beneath beside besides between beyond both but by can cannot could de
    despite did do does doing done down during each earlier either else elsewhere enough especially even
    eventually every everyone everything except few finally first for formerly four from further had half
    has have having he hence her here hers herself him himself his how however i if in inside instead into
    is it its itself just last lately later least less let like likewise many may maybe me meanwhile might
    mine more moreover most much must my myself near nearly neither never nevertheless next no nobody none
    nor not nothing now of off often on once one only onto or other others otherwise our ours out outside
    over overall own per perhaps please quite rather recently said same second see seven several shall she
    should since six so some someone something sometimes soon still such suddenly than that the their
    theirs them themselves then there thereafter therefore these they third this those though three
    through throughout thus to today together tomorrow too toward towards two under underneath unless
    unlike until up upon us usually very via was we well were what whatever when whenever where whereas
    wherever whether which while who whoever whole whom whose why will with within without would yes
    yesterday yet you your yours yourself asked told says say added tell ask i'm i'll i've we're we've
    it's he's she's that's there's they're don't doesn't didn't can't won't isn't wasn't
    """
)
"""Words that begin a sentence but no name, in lower case."""

_COMMON_OPENERS = _words(
    """
    officials police authorities government people residents workers investigators analysts experts
    reporters sources newspapers firefighters soldiers troops students doctors scientists researchers
    members leaders critics supporters opponents passengers witnesses prosecutors lawyers attorneys
    neighbors friends family children women men text passage article report reports editorial figure table
    section chapter note notes example examples use using used given following based born located built
    founded established asked added ordered elected named known called made make makes making take takes
    taking see set run running work working part parts number type types new old young early late good bad
    big small long short high low many large great little local national federal international foreign
    public private political military economic social special general major minor recent current former
    future past present previous original additional several various different similar important possible
    available necessary serious common simple clear full total final main key top senior chief deputy
    assistant acting newly retired veteran
    """
)
"""Other common words: no name when they stand alone at the beginning of a sentence."""

_TITLES = _words(
    """
    sen. rep. gov. gen. lt. col. maj. capt. sgt. cmdr. adm. rev. hon. prof. sir lord lady dr. mr. sen rep
    gov gen president vice-president chairman chairwoman minister premier chancellor secretary senator
    representative governor mayor ambassador judge justice attorney sheriff police major captain colonel
    lieutenant sergeant general admiral commander corporal private detective inspector professor pope king
    queen prince princess bishop archbishop cardinal father brother sister director spokesman spokeswoman
    actor actress singer author deputy foreign prime secretary-general inspector defense defence interior
    finance vice first chief executive officer lt col maj capt
    """
)
"""Titles in front of a person's name, which are no part of it."""

_INNER_TITLES = _words(
    """
    sen. rep. gov. gen. lt. col. maj. capt. sgt. adm. rev. dr. mr. mrs. ms. senator governor mayor
    ambassador premier chancellor chairman president director spokesman spokeswoman secretary
    secretary-general minister attorney inspector judge
    """
)
"""Titles that part two names: ``Texas Gov. John Connally``."""

_KEPT_TITLES = _words("mrs. ms. miss mrs ms")
"""Titles that stay part of a name: often the only difference between two members of a family."""

_MONTHS = _words(
    """
    january february march april june july august september october november december jan. feb. mar. apr.
    jun. jul. aug. sept. sep. oct. nov. dec. jan feb mar apr jun jul aug sept sep oct nov dec
    """
)
_WEEKDAYS = _words("monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun")
_NATIONALITIES = _words(
    """
    american british french german italian spanish portuguese dutch belgian swiss austrian polish czech
    slovak hungarian romanian bulgarian greek turkish russian soviet ukrainian chinese japanese korean
    vietnamese thai indian pakistani iranian iraqi israeli palestinian arab egyptian libyan syrian
    lebanese jordanian saudi kuwaiti african european asian canadian mexican cuban colombian brazilian
    argentine chilean peruvian australian swedish norwegian danish finnish irish scottish welsh english
    latin serbian croatian bosnian albanian estonian latvian lithuanian armenian georgian kazakh afghan
    nigerian kenyan ethiopian somali sudanese algerian moroccan tunisian indonesian malaysian philippine
    filipino burmese cambodian laotian taiwanese mongolian haitian nicaraguan panamanian salvadoran
    guatemalan honduran venezuelan bolivian catholic protestant jewish muslim moslem islamic christian
    buddhist hindu orthodox communist democrat democratic republican democrats republicans americans
    soviets russians germans japanese israelis palestinians arabs europeans
    """
)
"""Adjectives written with a capital: part of a name, but no entity alone."""

_NO_NAMES_ALONE = _NATIONALITIES | _TITLES | _WEEKDAYS | _MONTHS

_ORGANISATION_WORDS = _words(
    """
    agency airlines airways alliance army assembly association authority bank board broadcasting brigade
    bureau cabinet center centre chamber club co co. coalition college commission committee company
    conference congress corp corp. corporation corps council court department enterprise enterprises
    federation force forces forum foundation front fund government group guard hospital inc inc.
    industries institute institution international laboratories laboratory league limited ltd ltd.
    ministry movement navy network news office organisation organization parliament party police press
    radio records school senate service services society staff studios subcommittee syndicate team
    technologies television times tribune tv union university administration administration's post journal
    daily llc gmbh ag plc nations house affairs embassy
    """
)
_COMPANY_FORMS = _words("co co. corp corp. inc inc. ltd ltd. limited llc gmbh ag plc")
_PLACE_WORDS = _words(
    """
    airport avenue bay beach boulevard bridge building canyon cape city coast county creek desert district
    falls forest gulf harbor harbour heights hill hills island islands lake mountain mountains oblast
    ocean park peninsula plaza port province region republic river road sea springs square state states
    strait street territory town valley village north south east west northern southern eastern western
    central kingdom emirates
    """
)
_PLACE_PREPOSITIONS = _words("in at near from of outside")
_PERSON_VERBS = _words(
    """
    said says told asked added announced argued testified wrote born died married lives lived works worked
    who whose he she killed shot arrested convicted accused
    """
)
_CONNECTORS = _words("of de la del della da do dos du des van von der den bin ibn al el and for the y & 's")
"""Lower-case words inside a name."""

_NAME_PARTS = _words("jr. sr. jr sr ii iii iv")

_UNITS = _words(
    """
    percent million billion trillion miles mile feet foot acres acre yards yard inches tons tonnes mph
    kilometers kilometres km meters metres gmt a.m. p.m. am pm gallons barrels pounds kilograms kg degrees
    square cubic
    """
)
_US_STATES = _words(
    """
    ala. ariz. ark. calif. colo. conn. del. fla. ga. ill. ind. kan. ky. la. mass. md. mich. minn. miss.
    mo. mont. neb. nev. n.h. n.j. n.m. n.y. n.c. n.d. okla. ore. pa. r.i. s.c. s.d. tenn. tex. vt. va.
    wash. w.va. wis. wyo. d.c.
    """
)
"""Abbreviated names of states, which follow the name of a town."""

_ABBREVIATIONS = (
    _TITLES
    | _KEPT_TITLES
    | _MONTHS
    | _US_STATES
    | _words(
        "mr. mrs. ms. dr. st. mt. ft. no. vs. etc. e.g. i.e. inc. corp. co. ltd. jr. sr. bros. u.s. u.n. cf."
    )
)
"""Words with a full stop that does not end the sentence."""


_TOKEN = re.compile(
    r"(?:[^\W\d_]\.){2,}"  # U.S.
    r"|\$?\d++(?:[.,:]\d++){0,20}+(?:st|nd|rd|th|s)?(?![^\W_])"  # 1,200 and 1950s
    r"|[^\W_]++(?:['’\-&./][^\W_]++)*+"  # O'Neill, Knight-Ridder, AT&T
    r"|\n\s*\n|\S"
)
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)
_ENDS = frozenset(".!?")
_INITIAL = re.compile(r"[^\W\d_]$")
_MORE = re.compile(r"\s*+\S")


class _Token(msgspec.Struct, frozen=True):
    start: int
    end: int
    text: str
    lower: str
    possessive: bool = False
    """An ``'s`` stands right after it."""

    @property
    def is_capitalised(self) -> bool:
        return self.text[0].isupper()

    @property
    def is_word(self) -> bool:
        return self.text[0].isalnum()


def sentences(text: str) -> list[list[_Token]]:
    """The tokens of each sentence. A blank line ends a sentence, a stop after an abbreviation does not."""
    found: list[list[_Token]] = []
    current: list[_Token] = []
    for token in _tokens(text):
        blank = token.text.isspace()
        if not blank:
            current.append(token)
        if current and (blank or token.text in _ENDS):
            found.append(current)
            current = []
    if current:
        found.append(current)
    return found


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    taken = 0
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if start < taken:
            continue
        word = match[0]
        # Nearly no word has one, and a look at a letter is cheaper than a search.
        possessive = _POSSESSIVE.search(word) if word[-1] in "sS" else None
        if possessive and len(word) > 2:
            word = word[: possessive.start()]
            tokens.append(_Token(start, start + len(word), word, word.lower(), True))
            continue
        if text[end : end + 1] == "." and word[0].isalpha() and _keeps_stop(word, text, end):
            end = taken = end + 1
            word += "."
        tokens.append(_Token(start, end, word, word.lower()))
    return tokens


def _keeps_stop(word: str, text: str, end: int) -> bool:
    """Check whether the stop after a word is part of the word: an abbreviation, or the initial of a name."""
    if f"{word.lower()}." in _ABBREVIATIONS:
        return True
    return bool(_INITIAL.match(word)) and word.isupper() and bool(_MORE.match(text, end + 1))


_MAX_TOKENS = 9
"""Tokens of a name. A longer run of capitalised words is a headline."""
_YEAR = re.compile(r"(?:1[5-9]|20)\d\ds?$")
_CODE = re.compile(r"\d{3}")
"""Reference numbers such as LD2304174694 are no names."""
_NUMBER = re.compile(r"\$?\d[\d.,:]*$")
_MONTHS_IN_DATES = _MONTHS | {"may"}


class Span(msgspec.Struct, frozen=True):
    """A name in a sentence: the positions of the tokens and the kind.

    ``kind`` is sure, since it is part of the identity of an entity. ``likely`` is a guess for weights.
    """

    first: int
    last: int
    kind: str
    likely: str


def _spans(tokens: Sequence[_Token], is_common: Callable[[str], bool]) -> list[Span]:
    """Names, dates and quantities in the order of the sentence.

    ``is_common``: whether a word, in lower case, stands in the text in lower case too.
    """
    found: list[Span] = []
    opening = next((at for at, token in enumerate(tokens) if token.is_word), 0)
    at = 0
    while at < len(tokens):
        letter = tokens[at].text[0]
        if not (letter.isupper() or letter.isdigit() or letter == "$"):
            at += 1
            continue
        number = _number_span(tokens, at)
        if number is not None:
            found.append(number)
            at = number.last + 1
            continue
        end = _run_end(tokens, at)
        if end == at:
            at += 1
            continue
        for first, last in _split(tokens, at, end - 1):
            span = _name_span(tokens, first, last, opening, is_common)
            if span is not None:
                found.append(span)
        at = end
    return found


def _number_span(tokens: Sequence[_Token], at: int) -> Span | None:
    token = tokens[at]
    following = [token.lower for token in tokens[at + 1 : at + 3]] + ["", ""]
    if token.text.isdigit() and len(token.text) <= 2 and following[0] in _MONTHS_IN_DATES:
        last = at + 2 if following[1].isdigit() else at + 1
        return Span(at, last, DATE, DATE)
    if token.is_capitalised and token.lower in _MONTHS_IN_DATES and following[0].isdigit():
        return Span(at, at + 1, DATE, DATE)
    if _NUMBER.match(token.text) and following[0] in _UNITS:
        return Span(at, at + 1, QUANTITY, QUANTITY)
    if _YEAR.match(token.text):
        return Span(at, at, DATE, DATE)
    return None


def _is_name_token(token: _Token) -> bool:
    return token.is_capitalised and token.text != "I" and not _CODE.search(token.text)


def _begins_name(token: _Token) -> bool:
    return _is_name_token(token) and token.lower not in _FUNCTION_WORDS


def _run_end(tokens: Sequence[_Token], at: int) -> int:
    """The end of the run of capitalised words from here on, connectors inside included."""
    if not _is_name_token(tokens[at]):
        return at
    end = at + 1
    while end < len(tokens) and end - at < _MAX_TOKENS + 4:
        before = tokens[end - 1]
        if before.possessive or not _adjacent(before, tokens[end]):
            break
        if _is_name_token(tokens[end]):
            end += 1
            continue
        width = _connector(tokens, at, end)
        if not width:
            break
        end += width + 1
    return end


def _adjacent(before: _Token, token: _Token) -> bool:
    return token.is_word and token.start - before.end <= 1


def _connector(tokens: Sequence[_Token], first: int, at: int) -> int:
    """The number of connecting words at this place, if a name goes on after them."""
    for width in (1, 2):
        inside = tokens[at : at + width]
        after = tokens[at + width : at + width + 1]
        if not after or not _is_name_token(after[0]):
            continue
        if after[0].lower in _FUNCTION_WORDS or not _adjacent(inside[-1], after[0]):
            continue
        names = [token.lower for token in inside]
        if all(name in _CONNECTORS for name in names) and _joins(names, tokens[first:at]):
            return width
    return 0


def _joins(connecting: Sequence[str], before: Sequence[_Token]) -> bool:
    lower = [token.lower for token in before]
    if connecting[0] == "of":
        # "President of France" and "Ann Lee of Shell" are two names, "Department of Energy" is one.
        known = any(word in _ORGANISATION_WORDS or word in _PLACE_WORDS for word in lower)
        alone = len(lower) == 1 and lower[0] not in _TITLES
        return (known or alone) and lower[-1] not in _COMPANY_FORMS
    if connecting[0] in ("and", "for"):
        return (connecting == ["and"] and "of" in lower) or lower[-1] in _ORGANISATION_WORDS
    return connecting[0] not in ("the", "'s", "a")


def _split(tokens: Sequence[_Token], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut a run at a title inside: ``Texas Gov. John Connally`` are two names."""
    start = first
    for at in range(first + 1, last):
        if tokens[at].lower in _INNER_TITLES:
            yield start, at - 1
            start = at
    yield start, last


def _name_span(
    tokens: Sequence[_Token], first: int, last: int, opening: int, is_common: Callable[[str], bool]
) -> Span | None:
    """The name in a run of words, without leading and trailing words and titles; None without a name."""
    titled = False
    while first <= last and (tokens[first].lower in _FUNCTION_WORDS or not _is_name_token(tokens[first])):
        first += 1
    while first < last and tokens[first].lower in _TITLES:
        first += 1
        titled = True
    last = _without_tail(tokens, first, last)
    if first > last:
        return None
    if first == last and _is_no_name(tokens[first], first == opening, is_common):
        return None
    if last - first >= _MAX_TOKENS:
        return None
    kind = PERSON if titled else _kind(tokens, first, last)
    likely = kind if kind != NAME else _likely_kind(tokens, first, last)
    return Span(first, last, kind, likely)


def _without_tail(tokens: Sequence[_Token], first: int, last: int) -> int:
    while last >= first and (
        tokens[last].lower in _MONTHS
        or tokens[last].lower in _WEEKDAYS
        or tokens[last].lower in _FUNCTION_WORDS
        or tokens[last].lower in _CONNECTORS
    ):
        last -= 1
    return last


def _is_no_name(token: _Token, opening: bool, is_common: Callable[[str], bool]) -> bool:
    lower = token.lower
    if lower in _NO_NAMES_ALONE or len(token.text) == 1:
        return True
    if is_common(lower) or ("-" in token.text and lower.split("-")[0] in _NATIONALITIES):
        return True
    return opening and (
        lower in _COMMON_OPENERS
        or lower.endswith(("ly", "ing"))
        or lower.split("-")[0] in _FUNCTION_WORDS
        or lower.split("'")[0] in _FUNCTION_WORDS
    )


def _kind(tokens: Sequence[_Token], first: int, last: int) -> str:
    lower = [token.lower for token in tokens[first : last + 1]]
    after = [token.lower for token in tokens[last + 1 : last + 4]] + ["", "", ""]
    if lower[0] in _KEPT_TITLES or lower[-1] in _NAME_PARTS:
        return PERSON
    if lower[-1] in _US_STATES or lower[-1] in ("u.s.", "d.c."):
        return PLACE
    if any(word in _ORGANISATION_WORDS for word in lower):
        return ORGANISATION
    if lower[0] in _PLACE_WORDS or lower[-1] in _PLACE_WORDS:
        return PLACE
    if after[0] == "," and after[1].isdigit() and len(after[1]) <= 2:
        return PERSON
    return PLACE if after[0] == "," and after[1] in _US_STATES else NAME


def _likely_kind(tokens: Sequence[_Token], first: int, last: int) -> str:
    name = tokens[first : last + 1]
    before = tokens[first - 1].lower if first else ""
    after = tokens[last + 1].lower if last + 1 < len(tokens) else ""
    if len(name) == 1 and name[0].text.isupper() and 2 <= len(name[0].text) <= 6:
        return ORGANISATION
    if before in _PLACE_PREPOSITIONS:
        return PLACE
    if after in _PERSON_VERBS:
        return PERSON
    if 2 <= len(name) <= 3 and not any(token.lower in _CONNECTORS for token in name):
        return PERSON
    return NAME


PAIR_WEIGHTS = {
    frozenset((PERSON, ORGANISATION)): 1.0,
    frozenset((PERSON, PLACE)): 1.0,
    frozenset((ORGANISATION, PLACE)): 1.0,
    frozenset((PLACE,)): 1.0,
    frozenset((NAME, PLACE)): 0.7,
    frozenset((NAME, PERSON)): 0.7,
    frozenset((NAME, ORGANISATION)): 0.7,
    frozenset((NAME,)): 0.7,
}
"""Weight of two neighbouring names in a sentence, by their kinds."""
OTHER_PAIR = 0.6
MIN_WEIGHT = 0.5
"""Least sum of weights of a relation in a chunk. Chosen on the development part of CoNLL04."""
MAX_DISTANCE = 6
"""Farthest names of a sentence that are related, counted in names."""
_TERM_WORDS = (3, 2)
_MAX_TERMS = 20
"""Noun phrases of a chunk, the most frequent ones."""


class ProseExtractor:
    """Names by capital letters, recurring noun phrases of a chunk, and weighted co-occurrence."""

    name = "prose"
    version = 1

    def extract(self, document: GraphDocument, wanted: Sequence[int]) -> list[Extraction]:
        return [extract_text(document.chunks[at].text) for at in wanted]


class _Placed(msgspec.Struct, frozen=True):
    """An entity in a sentence. ``likely``: the kind, or a guess."""

    at: int
    entity: Entity
    likely: str


def extract_text(text: str) -> Extraction:
    """Entities and relations of one chunk of prose."""
    split = sentences(text)
    is_common = _common_words(split)
    terms = _terms(split)
    placed = [
        sorted(
            [*_names_in(text, tokens, is_common), *_terms_in(tokens, terms)],
            key=lambda one: (one.at, one.entity.name),
        )
        for tokens in split
    ]
    kinds = _one_kind_each(placed)
    entities: Counter[Entity] = Counter()
    weights: dict[tuple[Entity, Entity], float] = defaultdict(float)
    for found in placed:
        same = [replace(one, entity=kinds[one.entity.name.casefold()]) for one in found]
        entities.update(one.entity for one in same)
        _relate(same, weights)
    relations = [
        Relation(source, RELATED, target, round(weight, 3))
        for (source, target), weight in weights.items()
        if weight >= MIN_WEIGHT
    ]
    return Extraction(entities, relations)


def _names_in(text: str, tokens: Sequence[_Token], is_common: Callable[[str], bool]) -> Iterator[_Placed]:
    for span in _spans(tokens, is_common):
        name = " ".join(text[tokens[span.first].start : tokens[span.last].end].split())
        yield _Placed(span.first, Entity(name, span.kind), span.likely)


def _one_kind_each(placed: Sequence[Sequence[_Placed]]) -> dict[str, Entity]:
    """One entity for each name of the chunk: the first kind found other than a plain name."""
    kinds: dict[str, Entity] = {}
    for found in placed:
        for one in found:
            key = one.entity.name.casefold()
            if key not in kinds or kinds[key].kind == NAME:
                kinds[key] = one.entity
    return kinds


def _common_words(split: Sequence[Sequence[_Token]]) -> Callable[[str], bool]:
    lower = {token.text for tokens in split for token in tokens if token.text.islower()}
    return lower.__contains__


def _relate(placed: Sequence[_Placed], weights: dict[tuple[Entity, Entity], float]) -> None:
    """Add to the weight of each pair in a sentence: more for related kinds, less at a distance."""
    names = [one for one in placed if one.likely not in (DATE, QUANTITY)]
    for at, source in enumerate(names):
        for distance, target in enumerate(names[at + 1 : at + 1 + MAX_DISTANCE], 1):
            if source.entity != target.entity:
                weight = PAIR_WEIGHTS.get(frozenset((source.likely, target.likely)), OTHER_PAIR)
                pair = (source.entity, target.entity)
                weights[pair if pair[::-1] not in weights else pair[::-1]] += weight / distance


def _terms(split: Sequence[Sequence[_Token]]) -> frozenset[tuple[str, ...]]:
    """Phrases of two or three plain words with at least two occurrences in the chunk.

    A phrase inside a longer one counts only where it stands alone as well.
    """
    counts = Counter(phrase for tokens in split for run in _runs(tokens) for phrase in _phrases(run))
    for phrase, count in list(counts.items()):
        if len(phrase) == max(_TERM_WORDS) and count > 1:
            for part in (phrase[1:], phrase[:-1]):
                counts[part] -= count
    recurring = [(phrase, count) for phrase, count in counts.most_common() if count > 1]
    return frozenset(phrase for phrase, _ in recurring[:_MAX_TERMS])


def _runs(tokens: Sequence[_Token]) -> list[list[str]]:
    """Consecutive plain words, with one space between."""
    runs: list[list[str]] = []
    end = -1
    for token in tokens:
        if _is_term_word(token):
            if token.start - end == 1 and runs:
                runs[-1].append(token.text)
            else:
                runs.append([token.text])
            end = token.end
    return runs


def _phrases(run: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in _TERM_WORDS:
        for at in range(len(run) - size + 1):
            inside = tuple(run[at : at + size])
            if not inside[-1].endswith(("ly", "ed", "ing")) and not inside[0].endswith("ly"):
                yield inside


def _is_term_word(token: _Token) -> bool:
    text = token.text
    return len(text) > 2 and text.islower() and text.isalpha() and text not in _FUNCTION_WORDS


def _terms_in(tokens: Sequence[_Token], terms: frozenset[tuple[str, ...]]) -> list[_Placed]:
    found: list[_Placed] = []
    if not terms:
        return found
    at = 0
    while at < len(tokens):
        for size in _TERM_WORDS:
            phrase = tuple(token.text for token in tokens[at : at + size])
            if phrase in terms:
                found.append(_Placed(at, Entity(" ".join(phrase), TERM), TERM))
                at += size - 1
                break
        at += 1
    return found


CONTAINS, LINKS = "contains", "links"
URL = "url"
HEADING_SEPARATOR = " > "

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_LINK = re.compile(r"(?<!!)\[([^\[\]]{0,300})\]\(\s*+<?([^\s()<>]{1,1000}+)>?[^()]{0,300}+\)")
_AUTOLINK = re.compile(r"<(https?://[^\s<>]{1,1000})>")
_REFERENCE = re.compile(r"^ {0,3}\[[^\[\]]{1,300}\]:\s+<?(\S{1,1000}?)>?(?:\s|$)")
_IMAGE = re.compile(r"!\[[^\[\]]{0,300}\]\([^()]{0,1000}\)")
_CODE_SPAN = re.compile(r"`[^`\n]{1,300}`")
_MARKS = re.compile(r"[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}|^\s*(?:[-*+]|\d+\.|>|#{1,6})\s+|\|")
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*:")


class MarkdownExtractor:
    """Headings and links as relations of the document; the rest is read as prose, or by another extractor."""

    name = "markdown"
    version = 2

    def __init__(self, reader: GraphExtractor | None = None) -> None:
        """``reader``: finds the entities of the text instead of the rules for prose."""
        self._reader = reader

    def extract(self, document: GraphDocument, wanted: Sequence[int]) -> list[Extraction]:
        return [self._chunk(document, at) for at in wanted]

    def _chunk(self, document: GraphDocument, at: int) -> Extraction:
        entities, links, plain = _structure(document, document.chunks[at])
        if self._reader is not None:
            (found,) = self._reader.extract(document, [at])
        else:
            found = extract_text(plain)
        entities.update(found.entities)
        for source, _, target in links:
            entities.setdefault(source, 0)
            entities.setdefault(target, 0)
        related = [Relation(*parts, weight=float(count)) for parts, count in links.items()]
        return Extraction(entities, [*related, *found.relations])


def _structure(
    document: GraphDocument, chunk: GraphChunk
) -> tuple[Counter[Entity], Counter[tuple[Entity, str, Entity]], str]:
    """The document, the sections and links of a chunk, their relations, and the text without marks."""
    entities: Counter[Entity] = Counter({Entity(document.path, DOCUMENT): 1})
    links: Counter[tuple[Entity, str, Entity]] = Counter()
    plain: list[str] = []
    for place, line, heading in _lines(document, chunk):
        if heading is not None:
            entities[heading] += 1
            links[place, CONTAINS, heading] += 1
        else:
            plain.append(_plain(line))
        for target in _targets(line, document.path):
            entities[target] += 1
            links[heading or place, LINKS, target] += 1
    return entities, links, "\n".join(plain)


def _lines(document: GraphDocument, chunk: GraphChunk) -> Iterator[tuple[Entity, str, Entity | None]]:
    """The lines outside code blocks, each with the section around, and the section of a heading line."""
    above = [title for title in chunk.heading_path.split(HEADING_SEPARATOR) if title]
    first = chunk.text.lstrip().lstrip("#").lstrip()
    if above and first.startswith(above[-1]):
        # The path of a chunk that begins with a heading includes it.
        above.pop()
    open_sections = [(level, _section(document.path, title)) for level, title in enumerate(above, 1)]
    fence = ""
    lines = chunk.text.split("\n")
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
            continue
        if fence:
            continue
        level, title = _heading(line, lines[number + 1] if number + 1 < len(lines) else None)
        if not title:
            yield open_sections[-1][1] if open_sections else Entity(document.path, DOCUMENT), line, None
            continue
        while open_sections and open_sections[-1][0] >= level:
            open_sections.pop()
        section = _section(document.path, title)
        yield open_sections[-1][1] if open_sections else Entity(document.path, DOCUMENT), line, section
        open_sections.append((level, section))


def _heading(line: str, following: str | None) -> tuple[int, str]:
    found = text.markdown(line, following) if line.strip() else None
    return (found[0], _plain(found[1])) if found else (0, "")


def _section(path: str, title: str) -> Entity:
    return Entity(f"{path}#{_plain(title)}", SECTION)


def _plain(line: str) -> str:
    """A line without marks, code and the targets of links."""
    line = _IMAGE.sub(" ", line)
    line = _LINK.sub(r"\1", line)
    line = _AUTOLINK.sub(" ", line)
    return _MARKS.sub(" ", _CODE_SPAN.sub(" ", line)).strip()


def _targets(line: str, path: str) -> Iterator[Entity]:
    line = _CODE_SPAN.sub(" ", line)
    found = [match[2] for match in _LINK.finditer(line)]
    found += [match[1] for match in _AUTOLINK.finditer(line)]
    found += [match[1] for match in _REFERENCE.finditer(line)]
    for target in found:
        target = target.partition("#")[0]
        if _SCHEME.match(target):
            if target.lower().startswith(("http:", "https:")):
                yield Entity(target, URL)
        elif target:
            target = unquote(target.partition("?")[0])
            joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            yield Entity(joined, DOCUMENT)
