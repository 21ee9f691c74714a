"""Curves as SVG, in colours that can be read on white and on black."""

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 60, 52
GREY = "#7d8590"
COLOURS = {"theirs": "#e8590c", "ours": "#1c7ed6", "rust": "#2f9e44"}


def draw(title, x_title, y_title, curves, names, show):
    """Curves from zero over equally spaced places: `curves[kind]` maps the label of a place to a value."""
    labels = list(dict.fromkeys(label for curve in curves.values() for label in curve))
    top = 1.1 * max((value for curve in curves.values() for value in curve.values()), default=1)
    x = lambda i: LEFT + (i + 0.5) * (WIDTH - LEFT - RIGHT) / len(labels)
    y = lambda value: HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
    parts = [text(WIDTH / 2, 20, title, size=14), text(WIDTH / 2, HEIGHT - 10, x_title)]
    parts.append(text(LEFT - 8, TOP - 10, y_title, "end"))
    for step in range(5):
        value = top * step / 4
        line = '<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s" stroke-opacity="0.3"/>'
        parts.append(line % (LEFT, WIDTH - RIGHT, y(value), y(value), GREY))
        parts.append(text(LEFT - 8, y(value) + 4, show(value) if value else "0", "end"))
    parts += [text(x(i), HEIGHT - BOTTOM + 18, label) for i, label in enumerate(labels)]
    for i, (kind, curve) in enumerate(curves.items()):
        colour = COLOURS[kind]
        points = [(x(labels.index(label)), y(value)) for label, value in curve.items()]
        path = " ".join("%.1f,%.1f" % point for point in points)
        parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (path, colour))
        parts += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (*point, colour) for point in points]
        parts.append(text(LEFT + (i + 0.5) * (WIDTH - LEFT - RIGHT) / len(curves), 40, names[kind], colour=colour))
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif">'
    return "\n".join([head % (WIDTH, HEIGHT, WIDTH, HEIGHT), *parts, "</svg>", ""])


def text(x, y, words, anchor="middle", size=12, colour=GREY):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    form = '<text x="%.0f" y="%.0f" font-size="%d" text-anchor="%s" fill="%s">%s</text>'
    return form % (x, y, size, anchor, colour, words)
