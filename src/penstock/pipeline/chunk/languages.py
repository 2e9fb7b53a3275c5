"""Tree-sitter grammars: which node types are definitions, and which hold definitions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

import msgspec


class Grammar(msgspec.Struct, frozen=True):
    """A grammar's package and node types. ``leaves`` and ``containers`` have names; containers have members.

    ``wrappers`` stand around a definition (a decorator, an export). Definitions in ``groups`` belong to the
    level around the group (an include guard).
    """

    package: str
    leaves: frozenset[str]
    containers: frozenset[str]
    wrappers: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    function: str = "language"
    names: frozenset[str] = frozenset()
    """Types of nodes that are a name, where it has no field: the first one below a definition."""
    bodies: frozenset[str] = frozenset()
    """Types of nodes that hold members, where they have no field. ``.``: the container itself does."""
    needing_body: frozenset[str] = frozenset()
    """Types that are a definition only with one of ``bodies`` at most two levels below."""
    short_functions: frozenset[str] = frozenset()
    """Types that are a definition if their left side is a call: ``f(x) = 2x``."""
    keywords: frozenset[str] = frozenset()
    """First words of calls that are definitions."""
    tails: frozenset[str] = frozenset()
    """Types of nodes that belong to the definition before them: a body beside its head."""
    clauses: bool = False
    """Neighbours of the same name are one definition."""


def _words(*names: str) -> frozenset[str]:
    return frozenset(word for name in names for word in name.split())


# Grammars of the extra ``grammars``. Without it, files in these languages are cut by lines.
#
# Left out after measurements: Swift and Zig, which need seconds for 8,000 unlucky characters; Groovy, which
# takes usual code for errors; Perl and Solidity, whose packages use an interface that tree-sitter is about
# to remove; and Pascal, for its licence.


_OBJC_GROUPS = "preproc_ifdef preproc_if preproc_else preproc_elif linkage_specification declaration_list"

MAX_MORE_PARSED = 64 * 1024
"""Largest text parsed with one of these, in characters: some need time that grows faster than the text."""

MORE_GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {
        "ada": Grammar(
            "tree_sitter_ada",
            _words("subprogram_body subprogram_declaration full_type_declaration"),
            _words("package_body package_declaration"),
            groups=_words("compilation_unit"),
            names=_words("identifier"),
            bodies=_words("non_empty_declarative_part package_specification ."),
        ),
        "csharp": Grammar(
            "tree_sitter_c_sharp",
            _words(
                "method_declaration constructor_declaration destructor_declaration property_declaration "
                "delegate_declaration enum_declaration operator_declaration local_function_statement"
            ),
            _words(
                "namespace_declaration class_declaration interface_declaration struct_declaration "
                "record_declaration"
            ),
            _words("global_statement"),
        ),
        "dart": Grammar(
            "tree_sitter_dart",
            _words(
                "function_signature getter_signature setter_signature constructor_signature enum_declaration"
            ),
            _words("class_definition mixin_declaration extension_declaration"),
            _words("method_signature declaration"),
            names=_words("identifier"),
            bodies=_words("class_body extension_body"),
            tails=_words("function_body"),
        ),
        "elixir": Grammar(
            "tree_sitter_elixir",
            _words(""),
            _words("call"),
            names=_words("alias identifier"),
            bodies=_words("do_block"),
            keywords=_words(
                "defmodule defprotocol defimpl def defp defmacro defmacrop defguard defguardp defdelegate"
            ),
            clauses=True,
        ),
        "fortran": Grammar(
            "tree_sitter_fortran",
            _words("function subroutine derived_type_definition program"),
            _words("module submodule"),
            groups=_words("internal_procedures"),
            names=_words("name type_name"),
            bodies=_words("."),
        ),
        "haskell": Grammar(
            "tree_sitter_haskell",
            _words("function bind signature data_type newtype type_synomym"),
            _words("class instance"),
            groups=_words("declarations"),
            names=_words("variable name"),
            bodies=_words("class_declarations instance_declarations"),
            clauses=True,
        ),
        "terraform": Grammar(
            "tree_sitter_hcl",
            _words("block"),
            _words(""),
            groups=_words("body"),
            names=_words("identifier string_lit"),
        ),
        "julia": Grammar(
            "tree_sitter_julia",
            _words("function_definition macro_definition struct_definition abstract_definition assignment"),
            _words("module_definition"),
            names=_words("identifier field_expression"),
            bodies=_words("."),
            short_functions=_words("assignment"),
        ),
        "kotlin": Grammar(
            "tree_sitter_kotlin",
            _words("function_declaration secondary_constructor type_alias"),
            _words("class_declaration object_declaration companion_object"),
            bodies=_words("class_body enum_class_body"),
        ),
        "lua": Grammar(
            "tree_sitter_lua",
            _words("function_declaration assignment_statement"),
            _words(""),
            _words("variable_declaration"),
            names=_words("identifier dot_index_expression"),
            bodies=_words("function_definition"),
            needing_body=_words("assignment_statement"),
        ),
        "make": Grammar(
            "tree_sitter_make", _words("rule define_directive"), _words(""), names=_words("word")
        ),
        "objc": Grammar(
            "tree_sitter_objc",
            _words(
                "function_definition method_definition method_declaration struct_specifier union_specifier "
                "enum_specifier preproc_function_def"
            ),
            _words("class_interface class_implementation protocol_declaration"),
            _words("declaration type_definition implementation_definition"),
            _words(_OBJC_GROUPS),
            names=_words("identifier"),
            bodies=_words("."),
        ),
        "ocaml": Grammar(
            "tree_sitter_ocaml",
            _words("let_binding type_binding external method_definition class_binding value_specification"),
            _words("module_binding module_type_definition"),
            _words("value_definition type_definition module_definition class_definition"),
            function="language_ocaml",
            names=_words("value_name type_constructor module_name module_type_name class_name method_name"),
        ),
        "php": Grammar(
            "tree_sitter_php",
            _words("function_definition method_declaration"),
            _words(
                "class_declaration interface_declaration trait_declaration enum_declaration "
                "namespace_definition"
            ),
            bodies=_words("compound_statement"),
            needing_body=_words("namespace_definition"),
            function="language_php",
        ),
        "powershell": Grammar(
            "tree_sitter_powershell",
            _words("function_statement class_method_definition enum_statement"),
            _words("class_statement"),
            groups=_words("statement_list"),
            names=_words("function_name simple_name"),
            bodies=_words("."),
        ),
        "ruby": Grammar(
            "tree_sitter_ruby",
            _words("method singleton_method"),
            _words("module class singleton_class"),
            groups=_words("begin if unless"),
        ),
        "scala": Grammar(
            "tree_sitter_scala",
            _words("function_definition function_declaration given_definition type_definition"),
            _words("trait_definition class_definition object_definition enum_definition package_object"),
        ),
        "shell": Grammar("tree_sitter_bash", _words("function_definition"), _words("")),
        "sql": Grammar(
            "tree_sitter_sql",
            _words(
                "create_table create_view create_materialized_view create_function create_index create_type "
                "create_trigger create_schema create_sequence"
            ),
            _words(""),
            _words("statement"),
            names=_words("object_reference identifier"),
        ),
    }
)


MAX_PARSED = 256 * 1024
"""Largest text that is parsed, in characters. Longer files are generated code, and are cut by lines."""


_JAVASCRIPT = (
    "function_declaration generator_function_declaration method_definition variable_declarator "
    "function_signature abstract_method_signature type_alias_declaration"
)
_JAVASCRIPT_CONTAINERS = (
    "class_declaration abstract_class_declaration interface_declaration enum_declaration "
    "internal_module module"
)
_JAVASCRIPT_WRAPPERS = (
    "export_statement lexical_declaration variable_declaration ambient_declaration expression_statement"
)
_C_GROUPS = "preproc_ifdef preproc_if preproc_else preproc_elif linkage_specification declaration_list"

GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {
        "python": Grammar(
            "tree_sitter_python",
            _words("function_definition"),
            _words("class_definition"),
            _words("decorated_definition"),
            _words("if_statement else_clause try_statement block"),
        ),
        "javascript": Grammar(
            "tree_sitter_javascript",
            _words(_JAVASCRIPT),
            _words(_JAVASCRIPT_CONTAINERS),
            _words(_JAVASCRIPT_WRAPPERS),
        ),
        "typescript": Grammar(
            "tree_sitter_typescript",
            _words(_JAVASCRIPT),
            _words(_JAVASCRIPT_CONTAINERS),
            _words(_JAVASCRIPT_WRAPPERS),
            function="language_typescript",
        ),
        "tsx": Grammar(
            "tree_sitter_typescript",
            _words(_JAVASCRIPT),
            _words(_JAVASCRIPT_CONTAINERS),
            _words(_JAVASCRIPT_WRAPPERS),
            function="language_tsx",
        ),
        "go": Grammar(
            "tree_sitter_go",
            _words("function_declaration method_declaration type_spec type_alias"),
            _words(""),
            _words("type_declaration"),
        ),
        "rust": Grammar(
            "tree_sitter_rust",
            _words("function_item function_signature_item struct_item enum_item union_item type_item"),
            _words("trait_item impl_item mod_item macro_definition"),
        ),
        "java": Grammar(
            "tree_sitter_java",
            _words("method_declaration constructor_declaration compact_constructor_declaration"),
            _words("class_declaration interface_declaration enum_declaration record_declaration"),
            groups=_words("enum_body_declarations"),
        ),
        "c": Grammar(
            "tree_sitter_c",
            _words(
                "function_definition struct_specifier union_specifier enum_specifier preproc_function_def"
            ),
            _words(""),
            _words("declaration type_definition"),
            _words(_C_GROUPS),
        ),
        "cpp": Grammar(
            "tree_sitter_cpp",
            _words("function_definition union_specifier enum_specifier preproc_function_def"),
            _words("class_specifier struct_specifier namespace_definition"),
            _words("declaration type_definition template_declaration field_declaration"),
            _words(_C_GROUPS),
        ),
    }
    | dict(MORE_GRAMMARS)
)
"""Grammars by language. Those of ``MORE_GRAMMARS`` come with the extra ``grammars``."""

COMMENTS = _words("comment line_comment block_comment attribute_item haddock documentation_comment")
"""Node types that belong to the definition right after them."""


@functools.cache
def grammar_installed(language: str) -> bool:
    """Check whether the package of a language's grammar is installed; those of the plain install are."""
    return language not in MORE_GRAMMARS or find_spec(GRAMMARS[language].package) is not None
