"""Graph extraction: entities and relations of chunks, by rules or by a language model.

- ``protocol``: the interface of an extractor
- ``factory``: the extractor for a type of file, and its fingerprint
- ``prose``: names and recurring noun phrases, related by co-occurrence
- ``names``: names, dates and quantities in a sentence, with their kinds
- ``llm``: a language model behind an endpoint, instead of the rules for prose
- ``llm_answer``: the part of a model's answer that can be true of the text
- ``tokens``: sentences and words
- ``words``: word lists of English
- ``markdown``: sections and links of marked-up text, beside its prose
- ``code``: definitions, imports, calls and base classes of source code
- ``code_symbols``: the symbols of one file
- ``imports``: import statements and source files as full names of modules
- ``syntax``: node types of each language
"""
