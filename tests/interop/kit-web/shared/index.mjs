// What the client takes from its package of types, which no registry has: the events as AG-Kit documents them.
import { z } from "zod";

const call = { toolCallId: z.string() };

// An `error` is none of them, so the client skips it.
export const sendMessageEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text"), content: z.string() }),
  z.object({ type: z.literal("tool-call-start"), ...call, toolCallName: z.string() }),
  z.object({ type: z.literal("tool-call-args"), ...call, delta: z.string() }),
  z.object({ type: z.literal("tool-call-end"), ...call }),
  z.object({ type: z.literal("tool-result"), ...call, result: z.string() }),
  z.object({ type: z.literal("interrupt"), id: z.string(), reason: z.string(), payload: z.unknown() }),
]);

export const isV4Schema = (schema) => "_zod" in schema;
