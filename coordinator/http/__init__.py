"""The service over HTTP: what may be asked, and where it listens.

app          the routes
answers      rows as JSON and Arrow; admission: how much may wait
docs_page    the page that describes the routes
console.html the page that shows a pipeline, by these routes
listen, address     where it listens, and how a command finds it
"""
