"""Web pages: safe downloads, and the data for a crawl.

``addresses``: network addresses that may be contacted. ``fetch``: one page over HTTP, within the limits of
``protocol``.
``markup``: links and anchors of a page, and the page without navigation. ``robots``: rules of a site for
crawlers. ``site_lists``: lists of pages that a site publishes. ``urls``: normal form and scope of URLs.
"""
