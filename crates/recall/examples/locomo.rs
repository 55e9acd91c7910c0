fn main() {
    let dir = std::env::args().nth(1).unwrap_or("/work/shared/data/memory/locomo".into());
    let turns =
        toolyard_recall::evaluate::read_turns(&std::fs::read_to_string(format!("{dir}/turns.jsonl")).unwrap()).unwrap();
    let questions =
        toolyard_recall::evaluate::read_questions(&std::fs::read_to_string(format!("{dir}/questions.jsonl")).unwrap())
            .unwrap();
    println!("{}", serde_json::to_string_pretty(&toolyard_recall::evaluate::evaluate(&turns, &questions)).unwrap());
}
