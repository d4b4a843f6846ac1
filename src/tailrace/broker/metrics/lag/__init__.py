"""How far behind groups are: leaders remember where their logs ended when (`ends`), coordinators ask them (`watch`)."""
