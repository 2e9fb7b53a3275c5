"""Web pages: safe downloads, and the data for a crawl.

- ``urls``: normal form and scope of URLs; links, anchors and content of a page
- ``fetch``: one page over HTTP, within limits and from public addresses
- ``robots``: rules of a site for crawlers, and the lists of pages that it publishes
"""
