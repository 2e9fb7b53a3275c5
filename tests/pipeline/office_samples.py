"""Office documents generated for tests, part by part; no foreign file is stored here."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_KINDS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_NAMESPACES = " ".join(
    f'xmlns:{prefix}="{uri}"'
    for prefix, uri in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
        "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
        "x": "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
        "r": _KINDS,
        "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
        "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "cp": "http://schemas.openxmlformats.org/package/2006/metadata/core-properties",
        "dc": "http://purl.org/dc/elements/1.1/",
        "dcterms": "http://purl.org/dc/terms/",
    }.items()
)
CORE = (
    "<dc:title>The mill</dc:title><dc:creator>Ada</dc:creator><dc:language>en-GB</dc:language>"
    "<dcterms:created>2024-01-31T10:00:00Z</dcterms:created>"
    "<dcterms:modified>2025-02-01T11:30:00Z</dcterms:modified>"
)


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive; the part ``mimetype`` is not compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in parts.items():
            made.writestr(name, data, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)
    return out.getvalue()


def part(root: str, body: str) -> str:
    """An XML part with the namespaces of Office Open XML."""
    return f'<?xml version="1.0" encoding="UTF-8"?><{root} {_NAMESPACES}>{body}</{root}>'


def relations(*targets: str) -> str:
    """Relations r1, r2, …, each given as ``kind target``."""
    listed = "".join(
        f'<Relationship Id="r{number}" Type="{_KINDS}/{target.split()[0]}" Target="{target.split()[1]}"/>'
        for number, target in enumerate(targets, 1)
    )
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<?xml version="1.0"?><Relationships xmlns="{space}">{listed}</Relationships>'


def word(body: str, **parts: str) -> bytes:
    """A Word document with further parts by kind: ``styles="<w:style…"``."""
    roots = {"header": "hdr", "footer": "ftr"}
    kinds = {kind: kind.rstrip("0123456789") for kind in parts}
    made = {
        "_rels/.rels": relations("officeDocument word/document.xml", "core-properties docProps/core.xml"),
        "docProps/core.xml": part("cp:coreProperties", CORE),
        "word/document.xml": part("w:document", f"<w:body>{body}</w:body>"),
        "word/_rels/document.xml.rels": relations(*(f"{kinds[kind]} {kind}.xml" for kind in parts)),
    }
    for kind, content in parts.items():
        made[f"word/{kind}.xml"] = part(f"w:{roots.get(kinds[kind], kinds[kind])}", content)
    return archive(made)


def style(style_id: str, name: str, properties: str = "", based_on: str = "") -> str:
    base = f'<w:basedOn w:val="{based_on}"/>' if based_on else ""
    return (
        f'<w:style w:type="paragraph" w:styleId="{style_id}"><w:name w:val="{name}"/>{base}'
        f"<w:pPr>{properties}</w:pPr></w:style>"
    )


def item(text: str, number_id: int, level: int = 0) -> str:
    about = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number_id}"/></w:numPr>'
    return f"<w:p><w:pPr>{about}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def shape(*paragraphs: str, kind: str | None = None) -> str:
    """A shape of a slide; ``kind`` is that of a placeholder, without any it is a text box."""
    placeholder = "" if kind is None else f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>'
    texts = "".join(
        one if one.startswith("<") else f"<a:p><a:r><a:t>{one}</a:t></a:r></a:p>" for one in paragraphs
    )
    return f"<p:sp>{placeholder}<p:txBody>{texts}</p:txBody></p:sp>"


def powerpoint(*slides: str, parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A presentation. Its parts are stored in the reverse order of its slides."""
    count = len(slides)
    ids = "".join(f'<p:sldId id="{256 + n}" r:id="r{n}"/>' for n in range(1, count + 1))
    names = [f"slides/slide{count - n}.xml" for n in range(count)]
    made: dict[str, str | bytes] = {
        "_rels/.rels": relations("officeDocument ppt/presentation.xml", "core-properties docProps/core.xml"),
        "docProps/core.xml": part("cp:coreProperties", CORE),
        "ppt/presentation.xml": part("p:presentation", f"<p:sldIdLst>{ids}</p:sldIdLst>"),
        "ppt/_rels/presentation.xml.rels": relations(*(f"slide {name}" for name in names)),
    }
    for name, body in zip(names, slides, strict=True):
        made[f"ppt/{name}"] = part("p:sld", f"<p:cSld><p:spTree>{body}</p:spTree></p:cSld>")
    return archive(made | dict(parts or {}))


def cell(place: str, value: str, style_id: int = 0) -> str:
    """A cell with a text, or with a number if ``value`` is one."""
    if value.replace(".", "").isdigit():
        return f'<c r="{place}" s="{style_id}"><v>{value}</v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'


def excel(sheets: Mapping[str, str], parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A workbook: the rows of each sheet by its name. Style 1 is a date."""
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    formats = '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
    root = f'xmlns="{space}" xmlns:r="{_KINDS}"'
    listed = "".join(f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in enumerate(sheets, 1))
    made: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": relations("officeDocument xl/workbook.xml", "core-properties docProps/core.xml"),
        "docProps/core.xml": part("cp:coreProperties", CORE),
        "xl/workbook.xml": f"<workbook {root}><sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relations(
            *(f"worksheet worksheets/sheet{n}.xml" for n in range(1, len(sheets) + 1)), "styles styles.xml"
        ),
        "xl/styles.xml": f"<styleSheet {root}>{formats}</styleSheet>",
    }
    for number, rows in enumerate(sheets.values(), 1):
        made[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{space}"><sheetData>{rows}</sheetData></worksheet>'
        )
    return archive(made | dict(parts or {}))


_ODF = "urn:oasis:names:tc:opendocument:xmlns"
_ODF_SPACES = " ".join(
    f'xmlns:{prefix}="{_ODF}:{name}:1.0"'
    for prefix, name in {
        **{one: one for one in "office text table presentation style meta manifest".split()},
        "draw": "drawing",
    }.items()
)


def odf_part(root: str, body: str) -> str:
    """An XML part with the namespaces of OpenDocument."""
    dublin_core = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'
    return f'<?xml version="1.0"?><office:{root} {_ODF_SPACES} {dublin_core}>{body}</office:{root}>'


ODF_META = (
    "<office:meta><dc:title>The mill</dc:title><meta:initial-creator>Ada</meta:initial-creator>"
    "<dc:creator>Bob</dc:creator><meta:creation-date>2024-01-31T10:00:00.12</meta:creation-date>"
    "<dc:date>2025-02-01T11:30:00</dc:date><dc:language>en-GB</dc:language></office:meta>"
)


def opendocument(kind: str, body: str, styles: str = "", automatic: str = "", **parts: str) -> bytes:
    """An OpenDocument ``text``, ``spreadsheet`` or ``presentation``."""
    content = (
        f"<office:automatic-styles>{automatic}</office:automatic-styles>"
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    )
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": odf_part("document-content", content),
            "styles.xml": odf_part("document-styles", styles),
            "meta.xml": odf_part("document-meta", ODF_META),
            **parts,
        }
    )


def epub(*chapters: str, metadata: str = "", parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A book of XHTML chapters."""
    names = [f"c%20{number}.xhtml" for number in range(1, len(chapters) + 1)]
    items = "".join(
        f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(names)
    )
    order = "".join(f'<itemref idref="i{n}"/>' for n in range(len(chapters)))
    space = 'xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    made: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": f'<container xmlns="{_ODF}:container"><rootfiles>'
        '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
        "OPS/book.opf": f"<package {space}><metadata>{metadata}</metadata>"
        f"<manifest>{items}</manifest><spine>{order}</spine></package>",
    }
    for name, body in zip(names, chapters, strict=True):
        made[f"OPS/{name.replace('%20', ' ')}"] = f"<html><head><title/></head><body>{body}</body></html>"
    return archive(made | dict(parts or {}))
