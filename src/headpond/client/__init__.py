"""The client: connect, produce, consume, read, administer.

In the order data meets them: connect (the client), link, connection and backoff (one conversation, kept up);
producer, batcher, typed_values, exact_values, tables, promise and shipper (rows in, receipts out); consumer,
intake, batch and settler (batches out, settlements in); reader (by position, without a subscription); admin
(questions to a node). Machines stand below, in ``transport`` and ``wire``.
"""
