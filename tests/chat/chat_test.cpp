// SPDX-License-Identifier: Apache-2.0
#include <chat/chat.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <support/complaint.hpp>

namespace cohort::chat::chat_test {
namespace {

/// Bytes, and special tokens after them.
llama::tokenizer with_special(const std::vector<std::string>& names) {
  std::string json = llama::tokenizer::bytes_json();
  std::string added;
  for (std::size_t i = 0; i < names.size(); ++i) {
    added += R"({"id":)" + std::to_string(300 + i) + R"(,"content":")" + names[i] +
             R"(","special":true},)";
  }
  const std::string key = "\"added_tokens\":";
  const std::size_t at = json.find('[', json.find(key));
  json.insert(at + 1, added);
  return llama::tokenizer::parse(json, "test");
}

std::vector<kv::token_id> tokens(const std::vector<std::string>& parts,
                                 const std::vector<kv::token_id>& between) {
  std::vector<kv::token_id> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const char c : parts[i]) out.push_back(static_cast<unsigned char>(c));
    if (i < between.size()) out.push_back(between[i]);
  }
  return out;
}

TEST_CASE("the plain form is lines of roles") {
  const llama::tokenizer words = llama::tokenizer::bytes();
  const chat_writer chat{{.form = chat_form::plain}, words, {}};
  const std::vector<message> asked{{"system", "Be brief."}, {"user", "Hi"}};
  CHECK(chat.write(asked) == tokens({"", "system: Be brief.\nuser: Hi\nassistant:"}, {256}));
  CHECK(chat.stop_tokens().empty());
}

TEST_CASE("the special tokens of a form are its own, and never those of a client") {
  const llama::tokenizer words = with_special({"<|im_start|>", "<|im_end|>"});
  const chat_writer chat{{.form = chat_form::chatml}, words, {}};
  const std::vector<message> asked{{"user", "a<|im_end|>b"}};
  CHECK(chat.write(asked) ==
        tokens({"", "user\na<|im_end|>b", "\n", "assistant\n"}, {300, 301, 300}));
  CHECK(chat.stop_tokens() == std::vector<kv::token_id>{301});

  const llama::tokenizer three =
      with_special({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  const chat_writer llama{{.form = chat_form::llama3}, three, {}};
  const std::vector<message> spaced{{"user", " x \n"}};
  CHECK(llama.write(spaced) ==
        tokens({"", "", "user", "\n\nx", "", "assistant", "\n\n"}, {300, 301, 302, 303, 301, 302}));
}

TEST_CASE("a form that the tokenizer cannot write is refused") {
  const llama::tokenizer words = llama::tokenizer::bytes();
  for (const chat_form f : chat_forms) {
    if (f == chat_form::plain) continue;
    CAPTURE(to_string(f));
    CHECK_THROWS_AS((chat_writer{{.form = f}, words, {}}), config_error);
  }
}

/// Special tokens by their names, the rest as text.
std::string shown(const std::vector<kv::token_id>& tokens, const std::vector<std::string>& names) {
  std::string out;
  for (const kv::token_id t : tokens) {
    out +=
        t < 256 ? std::string(1, static_cast<char>(t)) : names[static_cast<std::size_t>(t - 300)];
  }
  return out;
}
std::string rendered(const chat_template& how, const std::vector<std::string>& names,
                     const std::vector<message>& messages) {
  const llama::tokenizer words = with_special(names);
  const chat_writer chat{how, words, {}};
  CHECK(chat.complaint(messages).empty());
  CHECK(chat.stop_tokens().size() == 1);
  return shown(chat.write(messages), names);
}

const std::vector<message> talk{
    {"system", "Be brief. "}, {"user", " Hi"}, {"assistant", "Yes?\n"}, {"user", "Bye "}};
const std::vector<message> no_system{talk.begin() + 1, talk.end()};

// What a template of each form does, in as few words as it takes; blank space, quotes and the way
// to a member are as they come.
const std::string zephyr_template =
    "{% for message in messages %}\n"
    "{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n"
    "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% else %}\n"
    "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
    "{% endfor %}";
const std::string llama2_template =
    R"({% set system_message = messages[0]['content'] if system_first else false %})"
    R"({% for message in rest %}{% if loop.first and system_message %}{% set content = )"
    R"('<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% endif %})"
    R"({% if is_user %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% else %})"
    R"({{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %})";
const std::string llama3_template =
    R"({% for message in messages %}{% set content = '<|start_header_id|>' + message["role"] + )"
    R"('<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.first %})"
    R"({% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %})"
    R"({{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }})";
std::string llama3_1_template(const std::string& date) {
  return "{{- bos_token }}\n{#- Which day it is. #}\n" + date +
         R"(
{%- set system_message = messages[0]['content']|trim if system_first else "" %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }})";
}
const std::string chatml_template =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{{ '<|im_start|>assistant\n' }}";
const std::string chatml_with_system =
    R"({%- if messages[0].role != 'system' %}
    {{- "<|im_start|>system\nYou're new.<|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' }})";

const std::vector<std::string> llama_names{"<s>", "</s>"};
const std::vector<std::string> im_names{"<|im_start|>", "<|im_end|>"};
const std::vector<std::string> header_names{"<|begin_of_text|>", "<|start_header_id|>",
                                            "<|end_header_id|>", "<|eot_id|>"};

TEST_CASE("each form that is known renders as its template does") {
  CHECK(rendered(read_chat_template(zephyr_template, "t"), llama_names, talk) ==
        "<|system|>\nBe brief. </s>\n<|user|>\n Hi</s>\n<|assistant|>\nYes?\n</s>\n"
        "<|user|>\nBye </s>\n<|assistant|>\n");
  const chat_template two = read_chat_template(llama2_template, "t");
  CHECK(rendered(two, llama_names, talk) ==
        "<s>[INST] <<SYS>>\nBe brief. \n<</SYS>>\n\n Hi [/INST] Yes? </s><s>[INST] Bye [/INST]");
  CHECK(rendered(two, llama_names, no_system) ==
        "<s>[INST] Hi [/INST] Yes? </s><s>[INST] Bye [/INST]");
  CHECK(rendered(read_chat_template(llama3_template, "t"), header_names, no_system) ==
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  const chat_template dated =
      read_chat_template(llama3_1_template(R"({%- set date_string = "1 Jan 2025" %})"), "t");
  const std::string head =
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
      "Cutting Knowledge Date: December 2023\nToday Date: 1 Jan 2025\n\n";
  const std::vector<message> hi{{"user", "Hi"}};
  const std::vector<message> brief{{"system", " Be brief."}, {"user", "Hi"}};
  const std::string asked =
      "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n";
  CHECK(rendered(dated, header_names, hi) == head + asked);
  CHECK(rendered(dated, header_names, brief) == head + "Be brief." + asked);

  CHECK(rendered(read_chat_template(chatml_template, "t"), im_names, hi) ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const chat_template helpful = read_chat_template(chatml_with_system, "t");
  CHECK(rendered(helpful, im_names, hi) ==
        "<|im_start|>system\nYou're new.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n");
  CHECK(rendered(helpful, im_names, brief) ==
        "<|im_start|>system\n Be brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n");
  // The last line end of a file is not written.
  CHECK(rendered(read_chat_template(chatml_template + "\n", "t"), im_names, hi) ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  // A template may begin with the begin token.
  CHECK(rendered(read_chat_template("{{ bos_token }}" + chatml_template, "t"),
                 {"<|im_start|>", "<|im_end|>", "<s>"}, hi)
            .starts_with("<s><|im_start|>user"));
}

/// As Qwen 3's template, with what its parts need and no tools; by member or by name.
std::string qwen3_template(bool by_name) {
  const std::string content = by_name ? "content" : "message.content";
  return R"({%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + )" +
         content + R"( + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- if '</think>' in )" +
         content + R"( %}
            {%- set content = )" +
         content + R"(.split('</think>')[-1].lstrip('\n') %}
            {%- set reasoning_content = )" +
         content + R"(.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{{- '<|im_start|>assistant\n' }})";
}

TEST_CASE("Qwen 3 does not read again what it thought before the last question") {
  for (const bool by_name : {false, true}) {
    const chat_template t = read_chat_template(qwen3_template(by_name), "t");
    REQUIRE(t.form == chat_form::qwen3);
    const auto write = [&](const std::vector<message>& m) { return rendered(t, im_names, m); };
    const std::string q = "<|im_start|>user\nQ<|im_end|>\n";
    const std::string ask = "<|im_start|>assistant\n";
    const message user{"user", "Q"};
    CHECK(write({{"system", "S"}, user}) == "<|im_start|>system\nS<|im_end|>\n" + q + ask);
    CHECK(write({user, {"assistant", "<think>\nHm.\n</think>\n\nA"}, user}) ==
          q + ask + "A<|im_end|>\n" + q + ask);
    CHECK(write({user, {"assistant", "A"}, user}) == q + ask + "A<|im_end|>\n" + q + ask);
    // The first end parts thoughts from what follows, the last one begins the answer.
    CHECK(write({user, {"assistant", "x</think>\ny</think>\n\nA\n"}, user}) ==
          q + ask + "A\n<|im_end|>\n" + q + ask);
    // Behind the last question: thoughts stay where there are any, and in the last message.
    CHECK(write({user, {"assistant", "<think>\n\nHm.\n\n</think>\n\nA"}, {"tool", "5"}}) ==
          q + ask + "<think>\nHm.\n</think>\n\nA<|im_end|>\n" +
              "<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n" + ask);
    CHECK(write({user, {"assistant", "A"}, {"tool", "5"}}) ==
          q + ask + "A<|im_end|>\n" +
              "<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n" + ask);
    CHECK(write({user, {"assistant", "\nA"}}) ==
          q + ask + "<think>\n\n</think>\n\nA<|im_end|>\n" + ask);
    // What a tool said in a user's name is no question.
    const message told{"user", "<tool_response>5</tool_response>"};
    CHECK(write({user, {"assistant", "<think>Hm.</think>A"}, told}) ==
          q + ask + "<think>\nHm.\n</think>\n\nA<|im_end|>\n<|im_start|>user\n" + told.text +
              "<|im_end|>\n" + ask);
  }
}

TEST_CASE("what a form leaves out does not count as bytes of the prompt") {
  const std::vector<message> asked{{"user", " Q "}, {"assistant", "<think>Hm.</think>\n\nYes"}};
  const llama::tokenizer words = with_special(im_names);
  CHECK(chat_writer{{.form = chat_form::qwen3}, words, {}}.least_bytes(asked) == 1 + 3);
  CHECK(chat_writer{{.form = chat_form::chatml}, words, {}}.least_bytes(asked) == 1 + 23);
}

TEST_CASE("blank space around a text is what Python's strip takes") {
  const std::vector<std::string> blank{"\t",     "\v",     "\x1C",   "\x1F",   "\u0085",
                                       "\u00A0", "\u1680", "\u2003", "\u200A", "\u2028",
                                       "\u202F", "\u205F", "\u3000"};
  const std::vector<std::string> kept{"\uFEFF", "\u200B", "\u180E", "\u2060", "\x1B", "\x85", "."};
  const chat_template t = read_chat_template(llama3_template, "t");
  const auto text_of = [&](const std::string& text) {
    const std::string out = rendered(t, header_names, {{"user", text}});
    const std::size_t from = out.find("\n\n") + 2;
    return out.substr(from, out.find("<|eot_id|>") - from);
  };
  for (const std::string& b : blank) {
    CAPTURE(b);
    CHECK(text_of(b + " x" + b + "y" + b + b) == "x" + b + "y");
    CHECK(text_of(b).empty());
  }
  for (const std::string& k : kept) {
    CAPTURE(k);
    CHECK(text_of(" " + k + "x" + k + "\u3000") == k + "x" + k);
  }
}

TEST_CASE("what tools say is written as the template does") {
  const std::vector<message> asked{{"user", "Hi"}, {"tool", "\"5\"\n"}, {"tool", "6"}};
  const auto after = [&](const chat_template& t, const std::vector<std::string>& names) {
    const std::string text = rendered(t, names, asked);
    return text.substr(text.find("Hi") + 2);
  };
  CHECK(after(read_chat_template(chatml_template, "t"), im_names) ==
        "<|im_end|>\n<|im_start|>tool\n\"5\"\n<|im_end|>\n<|im_start|>tool\n6<|im_end|>\n"
        "<|im_start|>assistant\n");
  const std::string wrapped =
      chatml_template + R"({% if false %}{{ '<tool_response>\n' }}{% endif %})";
  CHECK(after(read_chat_template(wrapped, "t"), im_names) ==
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n\"5\"\n\n</tool_response>\n"
        "<tool_response>\n6\n</tool_response><|im_end|>\n<|im_start|>assistant\n");
  const auto header = [](const std::string& role) {
    return "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
  };
  CHECK(after(read_chat_template(llama3_template, "t"), header_names) ==
        "<|eot_id|>" + header("tool") + "\"5\"<|eot_id|>" + header("tool") + "6<|eot_id|>" +
            header("assistant"));
  const std::string dated =
      llama3_1_template(R"({%- set date_string = "1 Jan 2025" %})") +
      R"({%- if false %}{{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}{%- endif %})";
  CHECK(after(read_chat_template(dated, "t"), header_names) ==
        "<|eot_id|>" + header("ipython") + R"("\"5\"\n")" + "<|eot_id|>" + header("ipython") +
            "\"6\"<|eot_id|>" + header("assistant"));
  const llama::tokenizer words = with_special(llama_names);
  for (const chat_form none : {chat_form::zephyr, chat_form::llama2}) {
    CHECK_FALSE(chat_writer{{.form = none}, words, {}}.complaint(asked).empty());
  }
}

TEST_CASE("a date that the template asks for is today's") {
  const chat_template now = read_chat_template(
      llama3_1_template(R"({%- set date_string = strftime_now("%d %b %Y") %})"), "t");
  CHECK(now.date.empty());
  const std::string text = rendered(now, header_names, {{"user", "Hi"}});
  const std::size_t at = text.find("Today Date: ");
  REQUIRE(at != std::string::npos);
  const std::string date = text.substr(at + 12, 11);
  CHECK(text.substr(at + 23, 2) == "\n\n");
  CHECK(date[2] == ' ');
  CHECK(date.substr(6, 3) == " 20");
}

TEST_CASE("Llama 2 takes user and assistant in turn") {
  const llama::tokenizer words = with_special(llama_names);
  const chat_writer chat{{.form = chat_form::llama2}, words, {}};
  CHECK(chat.complaint(talk).empty());
  const std::vector<std::vector<message>> bad{{{"system", "x"}},
                                              {{"assistant", "x"}},
                                              {{"user", "x"}, {"user", "y"}},
                                              {{"user", "x"}, {"system", "y"}}};
  for (const auto& messages : bad) CHECK_FALSE(chat.complaint(messages).empty());
}

test::gist complaint(const std::string& jinja) {
  return test::gist_of<config_error>([&] { (void)read_chat_template(jinja, "t.jinja"); });
}

TEST_CASE("a template that is not known is refused on one line, never guessed") {
  const auto with = [](std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
  };
  const std::string unknown[] = {
      "", "{{", "<|im_start|>",
      "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>' }}",
      // Phi's, Mistral's: close to the known ones.
      "{{ '<|user|>\n' + message['content'] + '<|end|>\n' }}{{ '<|assistant|>\n' }}",
      "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}",
      with(zephyr_template, "eos_token }}\n", "eos_token }}"),
      with(zephyr_template, "{{ '<|assistant|>' }}", "{{ '<|assistant|>' -}}"),
      with(llama2_template, "content.strip()", "content"),
      with(llama2_template, "{% set system_message =", "{% set system_message = 'Be kind.' %}{% x"),
      with(llama3_template, "| trim", ""),
      with(llama3_template, "{{ content }}", "{{ '<|start_header_id|>system' }}"),
      llama3_1_template(""),
      // Comments that leave a line end in what is written.
      llama3_1_template("\n\n{# Today. #}\n{%- set date_string = '1 Jan 2025' %}"),
      llama3_template + "Answer:",
      with(chatml_template, "message['content']", "message['content'] | trim"),
      with(chatml_template, "assistant\n", "assistant\n<think>"),
      // Thoughts are dropped in another way, or more is asked for.
      chatml_template + "{% if '</think>' in content %}{% endif %}",
      with(qwen3_template(false), "loop.index0 > ns", "loop.index0 >= ns"),
      with(qwen3_template(true), "lstrip('\\n') }}", "strip() }}"),
      with(qwen3_template(true), "system\\n' + messages[0]",
           "system\\nBe kind.<|im_end|>\\n' + messages[0]"),
      with(qwen3_template(false), "{{- '<|im_start|>assistant\\n' }}",
           "{{- '<|im_start|>assistant\\n<think>\\n' }}"),
      chatml_with_system + "{{ '<|im_start|>system\nYou are old.<|im_end|>\n' }}",
      chatml_template + "{{ bos_token }}",
      with(chatml_template, "{% endfor %}", "{% endfor %}{% set system_message = 'Be kind.' %}")};
  for (const std::string& text : unknown) {
    CAPTURE(text);
    CHECK(complaint(text) ==
          "t.jinja: ... no known form: ... --chat-template: plain, chatml, qwen3, llama2, "
          "llama3, llama3.1, zephyr");
  }
}

void spill(const std::string& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
}

TEST_CASE("of a directory chat_template.jinja counts before tokenizer_config.json") {
  const std::string directory = "scratch." + std::to_string(getpid()) + ".chat";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  CHECK(chat_template_of(directory).form == chat_form::plain);
  using nlohmann::json;
  json settings{{"chat_template", chatml_template},
                {"bos_token", {{"content", "<b>"}}},
                {"eos_token", "<e>"}};
  const std::string path = directory + "/tokenizer_config.json";
  spill(path, settings.dump());
  CHECK(chat_template_of(directory).form == chat_form::chatml);
  spill(directory + "/chat_template.jinja", zephyr_template);
  const chat_template t = chat_template_of(directory);
  CHECK(t.form == chat_form::zephyr);
  CHECK(t.begin_token == "<b>");
  CHECK(t.end_token == "<e>");
  CHECK(rendered(t, {"<e>"}, {{"user", "Hi"}}) == "<|user|>\nHi<e>\n<|assistant|>\n");
  // One that was chosen needs no template that is known.
  spill(directory + "/chat_template.jinja", "?");
  CHECK_THROWS_AS((void)chat_template_of(directory), config_error);
  const chat_form chosen = chat_form::llama2;
  CHECK(chat_template_of(directory, &chosen).form == chat_form::llama2);
  CHECK(chat_template_of(directory, &chosen).end_token == "<e>");
  std::filesystem::remove_all(directory);
}

TEST_CASE("a list of templates has one named default") {
  using nlohmann::json;
  json all = json::array({{{"name", "tool_use"}, {"template", "?"}},
                          {{"name", "default"}, {"template", llama3_template}}});
  const auto read = [](const json& t) {
    return read_chat_settings(json{{"chat_template", t}}.dump(), "t.json");
  };
  CHECK(read(all).form == chat_form::llama3);
  CHECK(read(nullptr).form == chat_form::plain);
  all.erase(1);
  CHECK(test::gist_of<config_error>([&] { (void)read(all); }) ==
        "t.json: chat_template: ... default: ... --chat-template");
  CHECK_THROWS_AS(read(5), config_error);
  CHECK_THROWS_AS((void)read_chat_settings("[]", "t"), config_error);
}

}  // namespace
}  // namespace cohort::chat::chat_test
