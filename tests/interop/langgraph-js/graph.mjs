// A graph with a model that says what it was told, piece by piece: test_langgraph_js.py.
import { AIMessage } from "@langchain/core/messages";
import { FakeStreamingChatModel } from "@langchain/core/utils/testing";
import { END, interrupt, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";

const agent = async ({ messages }) => {
  const told = messages.filter((message) => message.getType() === "human").map(({ text }) => text);
  const last = told.at(-1);
  if (last === "ask") return { messages: [new AIMessage(`Hello, ${interrupt({ question: "Your name?" })}!`)] };
  if (last === "fail") throw new Error("the node broke");
  const answer = new AIMessage(`You said: ${told.join(" / ")}`);
  const model = new FakeStreamingChatModel({ sleep: 5, responses: [answer] });
  return { messages: [await model.invoke(messages)] };
};

export const graph = new StateGraph(MessagesAnnotation)
  .addNode("agent", agent)
  .addEdge(START, "agent")
  .addEdge("agent", END)
  .compile();
