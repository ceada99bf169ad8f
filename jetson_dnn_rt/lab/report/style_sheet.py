"""How the page looks: one column of figures, on a phone as on a desk and on paper."""

from __future__ import annotations

from jetson_dnn_rt.lab.report.style import NARROW, WIDE

PHONE_PX = 700
"""Up to this width the narrow figures are shown."""

STYLE_SHEET = f"""
:root {{
  --ink: #1c2733; --muted: #5b6774; --line: #dfe4e9; --pale: #f4f6f8; --blue: #2b6cb0;
  --red: #c62828; --amber: #8a5200; --green: #1a6e47; --purple: #6d3fa0;
}}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; }}
body {{
  margin: 0 auto; max-width: {WIDE.width_px + 48}px; padding: 20px 24px 60px;
  color: var(--ink); background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif;
}}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }}
h2 {{
  font-size: 1.3rem; margin: 44px 0 8px; padding-top: 14px; border-top: 2px solid var(--ink);
}}
h3 {{ font-size: 1.05rem; margin: 26px 0 6px; overflow-wrap: anywhere; }}
p, ul, ol {{ margin: 6px 0; max-width: 78ch; }}
ul, ol {{ padding-left: 22px; }}
li {{ margin: 5px 0; }}
a {{ color: var(--blue); }}
code {{
  font-size: .9em; background: #e9edf1; padding: 1px 4px; border-radius: 3px;
  overflow-wrap: anywhere;
}}
.muted, figcaption, .where {{ color: var(--muted); }}
.where {{ font-size: .92rem; margin: 0 0 10px; max-width: none; }}
.headline {{ font-size: 1.2rem; font-weight: 600; margin: 10px 0 2px; max-width: none; }}
nav {{ margin: 8px 0 0; font-size: .95rem; }}
nav a {{ margin-right: 14px; white-space: nowrap; }}
.badge {{
  display: inline-block; padding: 1px 10px; border-radius: 11px; font-size: .85rem;
  font-weight: 600; white-space: nowrap;
}}
.good {{ background: #dff3e8; color: var(--green); }}
.warn {{ background: #fdeecb; color: var(--amber); }}
.bad {{ background: #fbdfdd; color: var(--red); }}
.info {{ background: #ece4f6; color: var(--purple); }}
.cards {{
  display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 16px;
  margin: 18px 0;
}}
.card {{ border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px 10px; }}
.card h3 {{
  margin: 0 0 4px; display: flex; justify-content: space-between; gap: 8px; align-items: center;
}}
.card h3 a {{ color: inherit; text-decoration: none; }}
.card dl {{
  display: grid; grid-template-columns: auto 1fr; gap: 3px 14px; margin: 8px 0 4px;
  font-size: .95rem;
}}
dt {{ color: var(--muted); }}
dd {{ margin: 0; text-align: right; font-variant-numeric: tabular-nums; }}
.bar {{ position: relative; height: 44px; margin: 12px 0 0; font-size: .8rem; }}
.bar i {{ position: absolute; display: block; top: 6px; height: 14px; }}
.bar .track {{ background: #e9edf1; left: 0; right: 0; }}
.bar .usual {{ background: #9cc0e4; }}
.bar .middle {{ background: var(--blue); width: 3px; top: 3px; height: 20px; }}
.bar .limit {{ background: var(--red); width: 3px; top: 0; height: 26px; }}
.bar .beyond {{ background: #f0b9b4; }}
.bar span {{ position: absolute; top: 25px; white-space: nowrap; color: var(--muted); }}
.bar .limit-name {{ color: var(--red); }}
.advice {{
  background: #fdf7e9; border-left: 4px solid #e0a53a; padding: 10px 18px; margin: 16px 0;
}}
.advice h2 {{ border: 0; padding: 0; margin: 0 0 4px; font-size: 1.05rem; }}
.advice ol {{ max-width: none; }}
figure {{ margin: 14px 0; }}
figcaption {{ font-size: .92rem; max-width: 86ch; margin-top: 4px; }}
img {{ width: 100%; height: auto; display: block; }}
table {{ border-collapse: collapse; margin: 10px 0; font-size: .93rem; width: 100%; }}
th, td {{
  text-align: left; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; font-variant-numeric: tabular-nums;
}}
thead th {{ color: var(--muted); font-weight: 600; border-bottom: 2px solid var(--line); }}
tbody th {{ font-weight: 600; }}
.statement {{
  border-left: 4px solid var(--purple); padding: 4px 14px; margin: 10px 0; max-width: 86ch;
}}
.small {{ font-size: .88rem; }}
details {{ margin: 8px 0; }}
summary {{ cursor: pointer; color: var(--blue); }}
.facts th {{ width: 17rem; }}
.facts td, .facts th {{ overflow-wrap: anywhere; }}
@media (max-width: {PHONE_PX}px) {{
  body {{ padding: 14px 16px 40px; font-size: 15px; }}
  h1 {{ font-size: 1.35rem; }}
  h2 {{ margin-top: 32px; }}
  .headline {{ font-size: 1.08rem; }}
  .cards {{ grid-template-columns: 1fr; }}
  picture {{ display: block; max-width: {NARROW.width_px + 40}px; margin: 0 auto; }}
  table, tbody, tr, th, td {{ display: block; width: auto; }}
  thead {{ display: none; }}
  tr {{ border-bottom: 1px solid var(--line); padding: 8px 0; }}
  th, td, .facts th {{ border: 0; padding: 1px 0; width: auto; }}
  td[data-label] {{
    display: grid; grid-template-columns: minmax(0, 9.5em) minmax(0, 1fr); column-gap: 10px;
  }}
  td[data-label]::before {{ content: attr(data-label); color: var(--muted); }}
  .facts td[data-label] {{ display: block; }}
  .facts td[data-label]::before {{ content: none; }}
}}
@media print {{
  figure, tr {{ break-inside: avoid; }}
  nav {{ display: none; }}
}}
"""
