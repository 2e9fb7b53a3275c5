"""Word lists of the prose extractor: closed classes of English, titles, and words that tell a kind."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION_WORDS = _words(
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

COMMON_OPENERS = _words(
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

TITLES = _words(
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

INNER_TITLES = _words(
    """
    sen. rep. gov. gen. lt. col. maj. capt. sgt. adm. rev. dr. mr. mrs. ms. senator governor mayor
    ambassador premier chancellor chairman president director spokesman spokeswoman secretary
    secretary-general minister attorney inspector judge
    """
)
"""Titles that part two names: ``Texas Gov. John Connally``."""

KEPT_TITLES = _words("mrs. ms. miss mrs ms")
"""Titles that stay part of a name: often the only difference between two members of a family."""

MONTHS = _words(
    """
    january february march april june july august september october november december jan. feb. mar. apr.
    jun. jul. aug. sept. sep. oct. nov. dec. jan feb mar apr jun jul aug sept sep oct nov dec
    """
)
WEEKDAYS = _words("monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun")
NATIONALITIES = _words(
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

NO_NAMES_ALONE = NATIONALITIES | TITLES | WEEKDAYS | MONTHS

ORGANISATION_WORDS = _words(
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
COMPANY_FORMS = _words("co co. corp corp. inc inc. ltd ltd. limited llc gmbh ag plc")
PLACE_WORDS = _words(
    """
    airport avenue bay beach boulevard bridge building canyon cape city coast county creek desert district
    falls forest gulf harbor harbour heights hill hills island islands lake mountain mountains oblast
    ocean park peninsula plaza port province region republic river road sea springs square state states
    strait street territory town valley village north south east west northern southern eastern western
    central kingdom emirates
    """
)
PLACE_PREPOSITIONS = _words("in at near from of outside")
PERSON_VERBS = _words(
    """
    said says told asked added announced argued testified wrote born died married lives lived works worked
    who whose he she killed shot arrested convicted accused
    """
)
CONNECTORS = _words("of de la del della da do dos du des van von der den bin ibn al el and for the y & 's")
"""Lower-case words inside a name."""

NAME_PARTS = _words("jr. sr. jr sr ii iii iv")

UNITS = _words(
    """
    percent million billion trillion miles mile feet foot acres acre yards yard inches tons tonnes mph
    kilometers kilometres km meters metres gmt a.m. p.m. am pm gallons barrels pounds kilograms kg degrees
    square cubic
    """
)
US_STATES = _words(
    """
    ala. ariz. ark. calif. colo. conn. del. fla. ga. ill. ind. kan. ky. la. mass. md. mich. minn. miss.
    mo. mont. neb. nev. n.h. n.j. n.m. n.y. n.c. n.d. okla. ore. pa. r.i. s.c. s.d. tenn. tex. vt. va.
    wash. w.va. wis. wyo. d.c.
    """
)
"""Abbreviated names of states, which follow the name of a town."""

ABBREVIATIONS = (
    TITLES
    | KEPT_TITLES
    | MONTHS
    | US_STATES
    | _words(
        "mr. mrs. ms. dr. st. mt. ft. no. vs. etc. e.g. i.e. inc. corp. co. ltd. jr. sr. bros. u.s. u.n. cf."
    )
)
"""Words with a full stop that does not end the sentence."""
