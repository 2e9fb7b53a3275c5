"""Container files: messages, archives and compressed files.

- ``mail``, ``outlook``: messages and mailboxes; messages of Outlook
- ``archive``, ``compressed``: zip and tar; single files behind gzip, bzip2 or xz
- ``member_names``: safe names of attachments and members of archives
"""
