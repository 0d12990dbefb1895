"""The node: stores what producers send before it says so, and offers it to subscriptions.

Reading order: settings, core/ (the rules, pure), server (sockets, threads and signals around them).
"""
