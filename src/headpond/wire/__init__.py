"""Bytes: what travels on a connection and stands in a file, with no IO anywhere.

Reading order: frame (every byte is in one), title (sets the context), columns and segment (plain rows), leaves,
typed_form, typed_words, typed_labels, typed_write, typed_read and typed (rows of a schema, with encoder state),
typed_rows (messages as such rows), ipc_claims (what an Arrow message says of itself), values and readable
(rows as Python values, and as JSON), record (a stored segment), control with consuming, fetching and tenancy (a
conversation), filter (which rows are wanted), connection (the machine that tells a conversation from noise).
"""
