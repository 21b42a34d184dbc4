"""Prompts as people type them, for `eaglechat train --prompts`: forms of everyday requests filled
with what they are about. `python -m tests.everyday_prompts [N]` prints N of them, a line each.

The built-in draft learnt from the target's answers to these, beside the chats it wrote itself.
"""

from __future__ import annotations

import random
import sys

CONCEPTS = (
    "gravity, evolution, inflation, the water cycle, plate tectonics, black holes, vaccines, DNA, "
    "the immune system, electricity, magnetism, sound waves, the greenhouse effect, entropy, "
    "supply and demand, compound interest, democracy, the Roman Empire, the Industrial "
    "Revolution, the French Revolution, the Cold War, the Silk Road, the Renaissance, the Great "
    "Depression, the moon landing, the printing press, the Enlightenment, Buddhism, stoicism, "
    "existentialism, blockchain, neural networks, cloud computing, encryption, databases, "
    "operating systems, compilers, recursion, version control, object-oriented programming, "
    "functional programming, binary search, hash tables, virtual memory, the internet, wireless "
    "networks, GPS, batteries, solar panels, wind turbines, nuclear power, jet engines, electric "
    "cars, 3D printing, robots, tides, earthquakes, volcanoes, hurricanes, rainbows, the seasons, "
    "eclipses, comets, the stars, the solar system, galaxies, atoms, molecules, acids and bases, "
    "chemical bonds, catalysts, cell division, mitochondria, the heart, the human brain, "
    "digestion, hormones, muscles, bones, vitamins, protein, antibiotics, allergies, diabetes, "
    "stress, anxiety, memory, dreams, habits, motivation, emotional intelligence, body language, "
    "leadership, teamwork, negotiation, marketing, accounting, taxes, insurance, mortgages, the "
    "stock market, bonds, cryptocurrency, budgeting, globalisation, climate change, biodiversity, "
    "deforestation, recycling, composting, beekeeping, coral reefs, rainforests, deserts, whales, "
    "penguins, octopuses, honeybees, wolves, dinosaurs, probability, fractions, prime numbers, "
    "calculus, matrices, statistics, logarithms, geometry, jazz, opera, impressionism, haiku, the "
    "novel, theatre, photography, architecture, chess, yoga, meditation, marathon running, "
    "football, basketball, swimming, the Olympic Games"
)
TASKS = (
    "learn to play the guitar, write a CV, prepare for a job interview, ask for a raise, save "
    "money, learn a new language, start running, lose weight, cook rice, bake bread, make coffee, "
    "grow tomatoes, take care of a puppy, train a cat, clean an oven, remove a wine stain, fix a "
    "leaking tap, paint a room, build a bookshelf, change a tyre, jump-start a car, plan a "
    "wedding, organise a birthday party, pack for a long trip, stay calm during an exam, study "
    "more effectively, read more books, stop procrastinating, wake up early, make new friends, "
    "deal with a difficult colleague, give a presentation, write a speech, write a short story, "
    "start a blog, start a small business, find customers, set up a home office, back up my "
    "files, choose a laptop, speed up an old computer, protect my privacy online, make a strong "
    "password, install Linux, use git, deploy a web application, debug a program, write unit "
    "tests, learn to program, read a research paper, write an essay, cite sources, take good "
    "photographs, draw a portrait, learn to swim, do a handstand, improve my posture, meditate, "
    "eat healthily, reduce food waste, keep houseplants alive, attract birds to my garden, move "
    "to another country, rent my first apartment, open a bank account, plan for retirement, teach "
    "a child to read, help my son with his homework, apologise to a friend, write a thank-you "
    "note"
)
PAIRS = (
    "tea and coffee; cats and dogs; a frog and a toad; weather and climate; a lake and a pond; "
    "speed and velocity; mass and weight; an alligator and a crocodile; RAM and a hard disk; TCP "
    "and UDP; a list and a tuple in Python; SQL and NoSQL databases; Java and C++; a compiler and "
    "an interpreter; a process and a thread; a stack and a queue; HTML and CSS; a hypothesis and "
    "a theory; a comet and an asteroid; fiction and non-fiction; a metaphor and a simile; "
    "capitalism and socialism; a republic and a monarchy; leasing and buying a car; a debit card "
    "and a credit card; a cold and the flu; yoga and pilates; aerobic and anaerobic exercise; "
    "butter and margarine; baking soda and baking powder; renting and buying a home; an introvert "
    "and an extrovert; psychology and psychiatry; empathy and sympathy; Mars and Venus; plant "
    "cells and animal cells; renewable and fossil energy; jazz and blues; Android and iOS"
)
DISHES = (
    "pancakes, lentil soup, vegetable curry, chicken stir-fry, mushroom risotto, guacamole, "
    "hummus, banana bread, apple pie, chocolate cake, oatmeal cookies, potato salad, Greek salad, "
    "lasagne, pasta carbonara, fish tacos, fried rice, beef stew, omelette, granola, falafel, "
    "pizza dough, spring rolls, pumpkin soup, shakshuka, ratatouille, macaroni and cheese, "
    "meatballs, lemonade, blueberry muffins, French toast, roast chicken, vegetarian chili, "
    "sushi, dumplings, tiramisu"
)
HEROES = (
    "a lighthouse keeper, a young dragon, two sisters, a robot, a lost dog, an old clockmaker, a "
    "boy who could talk to birds, a detective, a pirate captain, a mouse, a girl from the future, "
    "a gardener, a wizard without magic, a lonely astronaut, a baker, a snow leopard, a train "
    "driver, a librarian, a shy giant, a beekeeper, a turtle, a violin maker, a knight, a street "
    "musician"
)
EVENTS = (
    "who finds a mysterious letter; who gets lost in a forest; who learns to be brave; who makes "
    "an unexpected friend; who opens a door that was always locked; who saves a village from a "
    "flood; who wants to see the ocean; who discovers a hidden map; who must cross a desert; who "
    "tells the truth at last; who builds a flying machine; on the longest night of the year"
)
MOODS = (
    "autumn leaves, the moon, friendship, a rainy afternoon, the first day of school, my "
    "grandmother, a city at night, mountains, time, hope, a garden, losing a friend, coffee in "
    "the morning, snow, a river, spring, the desert, silence, an old house, summer holidays, "
    "stars, courage, home"
)
LETTERS = (
    "to my boss asking for a day off; to a customer whose parcel was lost; to my neighbours about "
    "a party; inviting colleagues to a farewell lunch; to a hotel asking about a reservation; "
    "complaining about a delayed flight; thanking a teacher; applying for a job as a nurse; "
    "applying for an internship at a software company; to my bank about an unknown charge; "
    "congratulating a friend on a new baby; resigning from my job; asking a professor for a "
    "recommendation; to a supplier about a late delivery; announcing a new product; asking for "
    "feedback on a project; to my team about a new meeting time; declining an invitation "
    "politely; apologising for missing a meeting; asking for a refund; to the city about a broken "
    "street lamp; introducing myself to a new team; reminding a client of an unpaid invoice"
)
PROGRAMS = (
    "checks whether a string is a palindrome; counts the words in a text; finds the largest "
    "number in a list; computes the factorial of a number; prints the first n Fibonacci numbers; "
    "checks whether a number is prime; removes duplicates from a list; sorts a list of "
    "dictionaries by a key; reads a CSV file and sums a column; merges two sorted lists; counts "
    "how often each letter occurs; converts Celsius to Fahrenheit; validates an e-mail address; "
    "finds the longest word in a sentence; rotates an array; computes the average of a list; "
    "flattens a nested list; finds all pairs that add up to a target; implements a stack; "
    "implements a queue with two stacks; implements binary search; implements bubble sort; "
    "implements merge sort; traverses a binary tree; finds the shortest path in a grid; parses a "
    "date; downloads a file; renames all files in a folder; generates a random password; computes "
    "the greatest common divisor; converts a number to binary; plays rock, paper, scissors; "
    "simulates rolling two dice; draws a triangle of stars; keeps a to-do list; caches the "
    "results of a function; reads JSON and prints it nicely"
)
QUERIES = (
    "lists all employees with their department; counts the orders of each month; finds customers "
    "without orders; computes the average salary by department; finds duplicate e-mail addresses; "
    "joins students with their courses; updates the price of a product; deletes old sessions; "
    "finds the second highest salary; shows the total sales of each region"
)
THINGS = (
    "books everyone should read, ideas for a weekend, questions to ask in a job interview, ways "
    "to save energy at home, gifts for a ten year old, hobbies to try, tips for new parents, "
    "team-building activities, science experiments for children, names for a cat, names for a "
    "bakery, slogans for a bicycle shop, benefits of walking, reasons to learn a second language, "
    "exercises without equipment, easy dinners, countries in South America, inventions that "
    "changed the world, famous painters, common programming mistakes, uses for an old jar, topics "
    "for a blog about travel, jobs that involve animals, ways to reduce plastic, signs of "
    "burnout, good habits, board games for two, movies about space, synonyms for happy, "
    "conversation starters, things to do on a rainy day, advantages of remote work, vegetables "
    "that grow in winter, icebreakers for a meeting, tips for saving water, things to check "
    "before a flight"
)
PLACES = (
    "Paris, Rome, Tokyo, New York, London, Barcelona, Istanbul, Cairo, Sydney, Kyoto, Lisbon, "
    "Prague, Vienna, Amsterdam, Berlin, Mexico City, Buenos Aires, Cape Town, Marrakesh, Bangkok, "
    "Singapore, Vancouver, San Francisco, Chicago, Edinburgh, Dublin, Athens, Florence, "
    "Copenhagen, Stockholm"
)
FACTS = (
    "What is the capital of Australia?; Who painted the Mona Lisa?; When did the Second World War "
    "end?; How many planets are in the solar system?; What is the largest ocean?; Who wrote "
    "Hamlet?; How far away is the moon?; What is the boiling point of water?; Who invented the "
    "telephone?; What language is spoken in Brazil?; How tall is Mount Everest?; What is the "
    "speed of light?; Which country has the most people?; What do pandas eat?; Why do leaves "
    "change colour?; Why do we yawn?; Why is the sea salty?; How do airplanes fly?; How do bees "
    "make honey?; Why do cats purr?; What causes thunder?; How does a microwave oven work?; Why "
    "do we have leap years?; How does soap work?; What are the primary colours?; How do magnets "
    "work?; Why does ice float?; How do birds find their way?; What is the longest river?; Who "
    "was Marie Curie?; Who was Nelson Mandela?; What did Isaac Newton discover?; Who was "
    "Cleopatra?; What is the Great Wall of China?; How does a refrigerator work?; How do trees "
    "make oxygen?; How is glass made?; How is paper made?; How do submarines dive?; What happens "
    "when we sleep?"
)
SENTENCES = (
    "The meeting is tomorrow at ten.; I would like a cup of tea, please.; We lost our luggage.; "
    "My sister lives in a small village.; Can you help me find my keys?; The weather is beautiful "
    "today.; I have been learning to cook.; The book is on the table.; How much does this cost?; "
    "She wants to become a doctor.; We are going to the beach on Sunday.; Please send me the "
    "report.; The train was late again.; He forgot his umbrella.; They bought a new house last "
    "year.; gonna be late, sorry; hey, can u send me the file asap; this product is really bad "
    "and I want my money back; i think we should maybe do it different; thx for ur help yesterday "
    "it was great"
)
REQUESTS = (
    "Suggest three outfits for a summer wedding.; I feel lonely since I moved. What can I do?; "
    "Should I learn Rust or Go first?; Is it worth buying an electric bike?; My plant has yellow "
    "leaves. What is wrong?; I cannot concentrate at work. Any advice?; What should I cook "
    "tonight? I have eggs, spinach and cheese.; My friend is sad. How can I cheer her up?; How "
    "much water should I drink a day?; Which exercises help against back pain?; I have a free "
    "afternoon. What should I do?; How can I stay motivated?; My code is slow. Where do I start?; "
    "How do I tell my parents that I failed an exam?; What is a good present for my father?; Can "
    "you tell me a joke?; Tell me something interesting.; Who are you?; What can you do?; Hello!; "
    "Hi, how are you?; Give me a riddle.; Let's play a guessing game.; Write a tweet about our "
    "new shop.; Write a product description for a wooden desk.; Write a short dialogue between a "
    "doctor and a patient.; Pretend you are a tour guide in a castle.; Make up a new animal and "
    "describe it."
)


ABOUT: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        CONCEPTS,
        ", ",
        (
            "Explain {} in simple terms.",
            "What should I know about {}?",
            "Write a short paragraph about {}.",
            "Give me five interesting facts about {}.",
            "Write an introduction to {} for students.",
            "Why does {} matter?",
            "explain {} like I'm five",
            "Write three quiz questions about {}, with answers.",
        ),
    ),
    (
        TASKS,
        ", ",
        (
            "How do I {}?",
            "Give me a step by step guide: how to {}.",
            "I want to {}. Where should I begin?",
            "What mistakes should I avoid when I {}?",
        ),
    ),
    (PAIRS, "; ", ("What is the difference between {}?", "Compare {} in a table.")),
    (
        DISHES,
        ", ",
        (
            "Give me a simple recipe for {}.",
            "How do I make {} for four people?",
            "What goes well with {}?",
        ),
    ),
    (HEROES, ", ", tuple(f"Write a short story about {{}} {it}." for it in EVENTS.split("; "))),
    (
        MOODS,
        ", ",
        ("Write a poem about {}.", "Write a haiku about {}.", "Describe {} in three sentences."),
    ),
    (LETTERS, "; ", ("Write an e-mail {}.", "Draft a short, friendly message {}.")),
    (
        PROGRAMS,
        "; ",
        (
            "Write a Python function that {}.",
            "Write a Python program that {}.",
            "Write a JavaScript function that {}.",
            "Write a C program that {}.",
            "Write a Java method that {}.",
            "How would I write a program that {}? Explain each step.",
        ),
    ),
    (QUERIES, "; ", ("Write an SQL query that {}.",)),
    (THINGS, ", ", ("List five {}.", "List ten {}.", "List twelve {}.")),
    (
        PLACES,
        ", ",
        (
            "Plan a weekend in {}.",
            "What should I see in {}?",
            "Plan three days in {} for a family with children.",
            "What is the best time of the year to visit {}?",
        ),
    ),
    (
        SENTENCES,
        "; ",
        (
            "Translate into Spanish: {}",
            "Translate into German: {}",
            "Translate into Italian: {}",
            "Rewrite this more formally: {}",
            "Correct the grammar: {}",
        ),
    ),
    (FACTS, "; ", ("{}",)),
    (REQUESTS, "; ", ("{}",)),
)
"""What prompts are about, what parts it, and the forms that each part is filled into."""


def everyday_prompts() -> list[str]:
    """All prompts that the forms make, in no order."""
    filled = [
        form.format(part)
        for parts, parted_by, forms in ABOUT
        for part in parts.split(parted_by)
        for form in forms
    ]
    return filled + _sums(random.Random(1))


def _sums(chance: random.Random) -> list[str]:
    """Small problems with numbers."""
    prompts = []
    for _ in range(40):
        a, b, c = chance.randint(3, 90), chance.randint(2, 30), chance.randint(2, 12)
        prompts += [
            f"What is {a} times {b}?",
            f"A shop sells pens for {b} cents each. How much do {c} pens cost?",
            f"Anna has {a} apples and gives away {min(a - 1, b)}. How many are left?",
            f"A car uses {c} litres for 100 kilometres. How much does it need for {a * 10}?",
            f"Solve for x: {c}x + {b} = {c * b + b}.",
            f"What is {c * 5}% of {a * 10}?",
            f"The sides of a rectangle are {a} and {b} metres. What is its area?",
            f"If {c} workers need {b} days, how long do {2 * c} workers need?",
        ]
    return prompts


def main() -> None:
    prompts = sorted(set(everyday_prompts()))
    random.Random(7).shuffle(prompts)
    print("\n".join(prompts[: int(sys.argv[1]) if len(sys.argv) > 1 else None]))


if __name__ == "__main__":
    main()
