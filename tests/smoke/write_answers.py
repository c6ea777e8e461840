"""Fill in the form of the demo's first page and print what it says as JSON. Runs in a project's environment.

The arguments: the page's file, then a JSON object with the number fields by label, or a string for the text field.
"""

import json
import sys

from streamlit.testing.v1 import AppTest

fields = json.loads(sys.argv[2])
app = AppTest.from_file(sys.argv[1], default_timeout=120).run()
if isinstance(fields, str):
    app.text_input[0].set_value(fields)
else:
    for field in app.number_input:
        field.set_value(fields[field.label])
app.run()
assert not app.exception and not app.error, (app.exception, app.error)
print(json.dumps({"metrics": [metric.value for metric in app.metric], "text": [text.value for text in app.markdown]}))
