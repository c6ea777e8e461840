"""A canvas to draw on, with a mouse, a pen or a finger."""

import base64
import io

import streamlit as st

HTML = """<div><canvas role="img" aria-label="Draw here"></canvas><button type="button">Clear</button></div>"""

CSS = """
div { display: flex; gap: 8px; align-items: start }
canvas { width: 100%; max-width: 256px; outline: 1px solid var(--st-border-color); border-radius: 6px;
    cursor: crosshair; touch-action: none }
button { padding: 6px 10px; border: 1px solid var(--st-border-color); border-radius: 6px; font: inherit; color: inherit;
    background: none; cursor: pointer }
"""

JS = """
export default function ({ data, parentElement, setStateValue }) {
    const canvas = parentElement.querySelector("canvas"), pen = canvas.getContext("2d");
    const clear = () => { pen.fillStyle = data.paper; pen.fillRect(0, 0, canvas.width, canvas.height); };
    if (!canvas.dataset.ready) {  // a later call, of a rerun, keeps what is drawn
        [canvas.width, canvas.height, canvas.dataset.ready] = [data.width, data.height, "yes"];
        clear();
    }
    const draw = (event) => {
        const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
        pen.lineTo((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
        pen.stroke();
    };
    canvas.onpointerdown = (event) => {
        canvas.setPointerCapture(event.pointerId);
        [pen.strokeStyle, pen.lineWidth, pen.lineCap, pen.lineJoin] = [data.ink, data.thickness, "round", "round"];
        pen.beginPath();
        draw(event), draw(event);  // twice: a click alone makes a dot
    };
    canvas.onpointermove = (event) => canvas.hasPointerCapture(event.pointerId) && draw(event);
    canvas.onpointerup = () => setStateValue("picture", canvas.toDataURL("image/png"));
    parentElement.querySelector("button").onclick = () => { clear(); setStateValue("picture", ""); };
}
"""

mount = st.components.v2.component("canvas", html=HTML, css=CSS, js=JS)


def draw(name: str, width: int, height: int, ink: str, paper: str) -> io.BytesIO | None:
    """What was drawn, as a PNG file of about 256 pixels in the proportions of width and height; None for nothing."""
    scale = 256 / max(width, height)
    size = {"width": round(width * scale), "height": round(height * scale)}
    state = mount(
        data={**size, "ink": ink, "paper": paper, "thickness": 22},
        default={"picture": ""},
        on_picture_change=lambda: None,
        key=f"{name} {width} {height}",
    )
    if not state.picture:
        return None
    file = io.BytesIO(base64.b64decode(state.picture.partition(",")[2]))
    file.name = name
    return file
