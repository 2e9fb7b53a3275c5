"""Tree-sitter grammars: which node types are definitions, and which hold definitions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

# The description of a tree-sitter grammar: which node types are definitions, and which hold definitions.


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


def words(*names: str) -> frozenset[str]:
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
            words("subprogram_body subprogram_declaration full_type_declaration"),
            words("package_body package_declaration"),
            groups=words("compilation_unit"),
            names=words("identifier"),
            bodies=words("non_empty_declarative_part package_specification ."),
        ),
        "csharp": Grammar(
            "tree_sitter_c_sharp",
            words(
                "method_declaration constructor_declaration destructor_declaration property_declaration "
                "delegate_declaration enum_declaration operator_declaration local_function_statement"
            ),
            words(
                "namespace_declaration class_declaration interface_declaration struct_declaration "
                "record_declaration"
            ),
            words("global_statement"),
        ),
        "dart": Grammar(
            "tree_sitter_dart",
            words(
                "function_signature getter_signature setter_signature constructor_signature enum_declaration"
            ),
            words("class_definition mixin_declaration extension_declaration"),
            words("method_signature declaration"),
            names=words("identifier"),
            bodies=words("class_body extension_body"),
            tails=words("function_body"),
        ),
        "elixir": Grammar(
            "tree_sitter_elixir",
            words(""),
            words("call"),
            names=words("alias identifier"),
            bodies=words("do_block"),
            keywords=words(
                "defmodule defprotocol defimpl def defp defmacro defmacrop defguard defguardp defdelegate"
            ),
            clauses=True,
        ),
        "fortran": Grammar(
            "tree_sitter_fortran",
            words("function subroutine derived_type_definition program"),
            words("module submodule"),
            groups=words("internal_procedures"),
            names=words("name type_name"),
            bodies=words("."),
        ),
        "haskell": Grammar(
            "tree_sitter_haskell",
            words("function bind signature data_type newtype type_synomym"),
            words("class instance"),
            groups=words("declarations"),
            names=words("variable name"),
            bodies=words("class_declarations instance_declarations"),
            clauses=True,
        ),
        "terraform": Grammar(
            "tree_sitter_hcl",
            words("block"),
            words(""),
            groups=words("body"),
            names=words("identifier string_lit"),
        ),
        "julia": Grammar(
            "tree_sitter_julia",
            words("function_definition macro_definition struct_definition abstract_definition assignment"),
            words("module_definition"),
            names=words("identifier field_expression"),
            bodies=words("."),
            short_functions=words("assignment"),
        ),
        "kotlin": Grammar(
            "tree_sitter_kotlin",
            words("function_declaration secondary_constructor type_alias"),
            words("class_declaration object_declaration companion_object"),
            bodies=words("class_body enum_class_body"),
        ),
        "lua": Grammar(
            "tree_sitter_lua",
            words("function_declaration assignment_statement"),
            words(""),
            words("variable_declaration"),
            names=words("identifier dot_index_expression"),
            bodies=words("function_definition"),
            needing_body=words("assignment_statement"),
        ),
        "make": Grammar("tree_sitter_make", words("rule define_directive"), words(""), names=words("word")),
        "objc": Grammar(
            "tree_sitter_objc",
            words(
                "function_definition method_definition method_declaration struct_specifier union_specifier "
                "enum_specifier preproc_function_def"
            ),
            words("class_interface class_implementation protocol_declaration"),
            words("declaration type_definition implementation_definition"),
            words(_OBJC_GROUPS),
            names=words("identifier"),
            bodies=words("."),
        ),
        "ocaml": Grammar(
            "tree_sitter_ocaml",
            words("let_binding type_binding external method_definition class_binding value_specification"),
            words("module_binding module_type_definition"),
            words("value_definition type_definition module_definition class_definition"),
            function="language_ocaml",
            names=words("value_name type_constructor module_name module_type_name class_name method_name"),
        ),
        "php": Grammar(
            "tree_sitter_php",
            words("function_definition method_declaration"),
            words(
                "class_declaration interface_declaration trait_declaration enum_declaration "
                "namespace_definition"
            ),
            bodies=words("compound_statement"),
            needing_body=words("namespace_definition"),
            function="language_php",
        ),
        "powershell": Grammar(
            "tree_sitter_powershell",
            words("function_statement class_method_definition enum_statement"),
            words("class_statement"),
            groups=words("statement_list"),
            names=words("function_name simple_name"),
            bodies=words("."),
        ),
        "ruby": Grammar(
            "tree_sitter_ruby",
            words("method singleton_method"),
            words("module class singleton_class"),
            groups=words("begin if unless"),
        ),
        "scala": Grammar(
            "tree_sitter_scala",
            words("function_definition function_declaration given_definition type_definition"),
            words("trait_definition class_definition object_definition enum_definition package_object"),
        ),
        "shell": Grammar("tree_sitter_bash", words("function_definition"), words("")),
        "sql": Grammar(
            "tree_sitter_sql",
            words(
                "create_table create_view create_materialized_view create_function create_index create_type "
                "create_trigger create_schema create_sequence"
            ),
            words(""),
            words("statement"),
            names=words("object_reference identifier"),
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
            words("function_definition"),
            words("class_definition"),
            words("decorated_definition"),
            words("if_statement else_clause try_statement block"),
        ),
        "javascript": Grammar(
            "tree_sitter_javascript",
            words(_JAVASCRIPT),
            words(_JAVASCRIPT_CONTAINERS),
            words(_JAVASCRIPT_WRAPPERS),
        ),
        "typescript": Grammar(
            "tree_sitter_typescript",
            words(_JAVASCRIPT),
            words(_JAVASCRIPT_CONTAINERS),
            words(_JAVASCRIPT_WRAPPERS),
            function="language_typescript",
        ),
        "tsx": Grammar(
            "tree_sitter_typescript",
            words(_JAVASCRIPT),
            words(_JAVASCRIPT_CONTAINERS),
            words(_JAVASCRIPT_WRAPPERS),
            function="language_tsx",
        ),
        "go": Grammar(
            "tree_sitter_go",
            words("function_declaration method_declaration type_spec type_alias"),
            words(""),
            words("type_declaration"),
        ),
        "rust": Grammar(
            "tree_sitter_rust",
            words("function_item function_signature_item struct_item enum_item union_item type_item"),
            words("trait_item impl_item mod_item macro_definition"),
        ),
        "java": Grammar(
            "tree_sitter_java",
            words("method_declaration constructor_declaration compact_constructor_declaration"),
            words("class_declaration interface_declaration enum_declaration record_declaration"),
            groups=words("enum_body_declarations"),
        ),
        "c": Grammar(
            "tree_sitter_c",
            words("function_definition struct_specifier union_specifier enum_specifier preproc_function_def"),
            words(""),
            words("declaration type_definition"),
            words(_C_GROUPS),
        ),
        "cpp": Grammar(
            "tree_sitter_cpp",
            words("function_definition union_specifier enum_specifier preproc_function_def"),
            words("class_specifier struct_specifier namespace_definition"),
            words("declaration type_definition template_declaration field_declaration"),
            words(_C_GROUPS),
        ),
    }
    | dict(MORE_GRAMMARS)
)
"""Grammars by language. Those of ``MORE_GRAMMARS`` come with the extra ``grammars``."""

COMMENTS = words("comment line_comment block_comment attribute_item haddock documentation_comment")
"""Node types that belong to the definition right after them."""
