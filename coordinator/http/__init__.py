"""The service over HTTP: what may be asked, and where it listens.

app          the routes
doors        what every request passes: access, rate, how many at once, how large; connections: how many, how long
access, tokens who may ask for what; tls: certificates; access_log
lanes        threads, a bounded number for each kind of request; waiting: requests that wait for steps
pushes       rows in; changes: what changes in a view
rendering    rows as JSON and Arrow
section      the settings [http]
docs_page    the page that describes the routes
console.html the page that shows a pipeline, by these routes
listen       where it listens; identity: whether a service there is the one that a command looks for
"""
