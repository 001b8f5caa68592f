"""Output of `pm show` in the driver's shell of a Tofino switch."""

PM_SHOW = """
-----+----+---+----+-------+----+--+--+---+---+---+--------+----------------+----------------+-
PORT |MAC |D_P|P/PT|SPEED  |FEC |AN|KR|RDY|ADM|OPR|LPBK    |FRAMES RX       |FRAMES TX       |E
-----+----+---+----+-------+----+--+--+---+---+---+--------+----------------+----------------+-
1/0  |23/0|132|3/ 4|100G   | RS |Au|Au|YES|ENB|UP |  NONE  |               0|               0|
5/3  |19/3|167|1/39|10G    |NONE|Au|Au|YES|ENB|DWN|  NONE  |              12|               0|
"""
