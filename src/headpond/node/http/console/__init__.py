"""The console: a page for people at the node's HTTP address.

In reading order::

    site    Serves the files of ``static`` to anybody; they hold no data, the page asks the API for it

``static`` is the page: ``index.html``, ``app.js`` (the frame around all pages), ``lib`` (requests, parts of
pages), ``pages`` (one file per page), ``vendor`` (libraries with their licences). Browsers load these files as
they are; nothing is built.
"""
