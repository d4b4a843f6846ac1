import java.io.FileInputStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.HexFormat;

/** Prints the subject of each certificate as Kafka's brokers name its owner, as UTF-8 in hexadecimal. */
public class Subjects {
    public static void main(String[] paths) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String path : paths) {
            try (FileInputStream file = new FileInputStream(path)) {
                X509Certificate certificate = (X509Certificate) factory.generateCertificate(file);
                String name = certificate.getSubjectX500Principal().getName();
                System.out.println(HexFormat.of().formatHex(name.getBytes("UTF-8")));
            }
        }
    }
}
