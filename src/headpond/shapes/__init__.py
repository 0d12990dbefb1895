"""What is told of things as JSON: one function a noun, the same for ``--json`` and for HTTP (docs/json.md).

times, error, setting, topic, place, producer, writer, subscription, dead, message, token, admin_log, peer,
ledger, top; columns reads a schema as a person writes it. A ``TypedDict`` beside a function names its fields,
for those who read the types and for the OpenAPI schema.
"""
