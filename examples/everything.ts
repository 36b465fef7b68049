// Calls three tools of the server "everything" (text, structured data, an image), measures the image where it is, and
// hands it back as a file. The caller sees a few lines, not the image's base64.
//
//   ./mcpx-dev run examples/everything.ts

interface ImageBlock {
  type: "image";
  data: string; // base64
  mimeType: string;
}

const PNG_MAGIC = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

// Text comes back as it is.
const echoed = `${await everything.echo({ message: "hello from mcpx" })}`;
const tools = Object.keys(everything);
emit({ step: "echo", echoed, tools: tools.length });

// A tool that declares its output returns the value itself.
const weather = await everything.get_structured_content({ location: "Chicago" });
emit({ step: "weather", weather });

// Here the text is only the caption; the whole answer, image included, is on `.raw`.
const shot = await everything.get_tiny_image();
const image: ImageBlock | undefined = shot.raw.content.find((block: { type: string }) => block.type === "image");
if (!image) throw new Error("get-tiny-image returned no image");
const bytes = Uint8Array.from(atob(image.data), (char) => char.charCodeAt(0));
if (PNG_MAGIC.some((byte, at) => bytes[at] !== byte)) throw new Error(`not a PNG, though it says ${image.mimeType}`);
log.info(`the image has ${bytes.length} bytes, ${image.data.length} as base64`);
emit({ step: "image", bytes: bytes.length });

// A tool's answer can be kept as it came: the image in it becomes the file.
const file = await artifact("tiny.png", shot);
if (file.size !== bytes.length) throw new Error(`stored ${file.size} bytes of ${bytes.length}`);

return {
  tools,
  echoed,
  weather,
  image: { bytes: bytes.length, mime: image.mimeType },
  artifact: file.id,
};
