"""What the users of the load test ask: live translation and support, in English and Chinese.

Every message differs, so that no prefix but the template's is ever in the server's cache.
"""

MIN_CHARACTERS = 50
MAX_CHARACTERS = 100

_SENTENCES = {
    "english": (
        "Please translate this into German for my customer.",
        "My parcel was due on Monday and has not come yet.",
        "The card was charged twice, I want one payment back.",
        "How do I change the delivery address of my order?",
        "Is the late train to the airport running tonight?",
        "The screen stays dark since the update this morning.",
        "Can I cancel the subscription before the month ends?",
        "Tell the driver that I am waiting at the south gate.",
        "Which of the two plans is cheaper for three people?",
        "What does the sign above the second door say?",
    ),
    "chinese": (
        "请把这句话翻译成英文，对方正在电话里等我。",
        "我的包裹应该星期一到，可是现在还没有收到。",
        "信用卡被扣了两次款，请退还其中的一笔。",
        "怎样才能修改订单的收货地址？",
        "今天晚上去机场的末班车还开吗？",
        "今天早上更新以后，屏幕一直是黑的。",
        "我想在月底之前取消会员，需要做什么？",
        "请告诉司机，我在南门等他。",
        "三个人一起用，哪一种套餐更便宜？",
        "第二扇门上面的牌子写的是什么意思？",
    ),
}

LANGUAGES = tuple(_SENTENCES)


def message(dice, language):
    """A message of MIN_ to MAX_CHARACTERS characters; `dice`: a random.Random."""
    length = dice.randint(MIN_CHARACTERS, MAX_CHARACTERS)
    text = f"{dice.randrange(10**6):06d} "
    while len(text) < length:
        text += dice.choice(_SENTENCES[language])
        if language == "english":
            text += " "
    return text[:length]
