"""Tree-sitter grammars: which node types are definitions, and which hold definitions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from penstock.pipeline.chunk.grammar import Grammar
from penstock.pipeline.chunk.grammar import words as _words
from penstock.pipeline.chunk.more_languages import MORE_GRAMMARS

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
