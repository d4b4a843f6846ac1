"""What a principal may do, asked on the way of a request. None of it runs on a node without an authorizer.

access        the decisions: cached for a principal until the ACLs change, and told to the audit log
judging       what the catalogue declares (`Need`), as a step before the handler: what is refused is taken out of the
              request, and its answers are joined to the handler's
the others    judges of APIs of which one need does not say it all, by what they are about; the catalogue names them.
              Each is given the request and gives it back, whole or without what is refused, or raises KafkaError
"""
