"""The pages, by what they are about. Each module has `routes(console)`."""
