"""From a page of text to chunks whose boundaries find each other again after an edit."""
