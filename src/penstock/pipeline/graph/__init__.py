"""Graph extraction: entities and relations of chunks, by rules or by a language model.

- ``protocol``: the interface of an extractor
- ``factory``: the extractor for a type of file, and its fingerprint
- ``prose``: names and recurring noun phrases, related by co-occurrence; sections and links of Markdown
- ``code``: definitions, imports, calls and base classes of source code
- ``llm``: a language model behind an endpoint, instead of the rules for prose
"""
